"""Leaving out, observing, sharing, forcing and fusing; and that nothing a configuration says goes unnoticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from onnxq.config import read_config
from onnxq.config.assignments import Assignment
from onnxq.errors import ConfigError, UnsupportedError
from onnxq.graph import Graph
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import QuantPlan
from tests.place.small_network import network, plan_of

# ---- no quantizer, only an observer, one for several -------------------------------------------------------------


def test_parts_of_a_node_can_be_left_out() -> None:
    assert "w1" in plan_of({})
    assert "b1" in plan_of({})
    assert "w1" not in plan_of({"node": {"conv1": {"weight": {"skip": True}}}})
    assert "b1" not in plan_of({"node": {"conv1": {"weight": {"skip": True}}}})
    assert "b1" not in plan_of({"op": {"Conv": {"bias": {"skip": True}}}})
    without = plan_of(
        {"node": {"conv2": {"activation": {"skip": True}}, "conv1": {"output": {"skip": True}}}}, "tensorrt"
    )
    assert all(edge.node != "conv2" for edge in without["r"].edges or ())


def test_a_tensor_can_be_left_out_for_everybody() -> None:
    plan = plan_of({"tensor": {"r": {"skip": True}}})
    assert "r" not in plan
    assert "b2" not in plan, "its scale would derive from a float input"


def test_global_tables_can_leave_a_whole_role_out() -> None:
    weights_only = plan_of({"activation": {"skip": True}}, "academic")
    assert {placement.role for placement in weights_only} == {"weight"}
    assert not any(placement.role == "bias" for placement in plan_of({"bias": {"skip": True}}))
    assert "x" not in plan_of({"input": {"skip": True}}, "openvino")


@pytest.mark.parametrize(
    "config",
    [
        {"tensor": {"w2": {"observe_only": True}}},
        {"node": {"conv2": {"weight": {"observe_only": True}}}},
        {"op": {"Conv": {"weight": {"observe_only": True}}}},
        {"weight": {"observe_only": True}},
    ],
)
def test_a_quantizer_that_only_observes_has_no_reader(config: dict[str, Any]) -> None:
    placement = plan_of(config)["w2"]
    assert placement.observe_only
    assert placement.edges == ()
    assert "b2" not in plan_of(config), "the scale of a bias needs a quantized weight"


def test_a_node_whose_quantizers_only_observe_counts_as_float_with_the_reason() -> None:
    plan = plan_of({"node": {"conv1": {"observe_only": True, "activation": {"observe_only": True}}}})
    assert "only observe" in plan.left_float["conv1"]
    assert plan["w1"].observe_only
    assert plan["x"].observe_only


def test_shared_quantizers_of_activations_have_one_leader_and_look_at_all() -> None:
    plan = plan_of({"tensor": {"c": {"share": "both"}, "r": {"share": "both"}}})
    assert plan["c"].tie == "r" or plan["r"].tie == "c"
    leader = plan[plan.leader("c")]
    assert set(leader.observe) == {"c", "r"}


def test_shared_quantizers_of_weights_need_one_scale() -> None:
    config = {"weight": {"per_channel": False}, "node": {"conv*": {"weight": {"share": "kernels"}}}}
    plan = plan_of(config)
    assert plan["w2"].tie == "w1"
    with pytest.raises(ConfigError, match=r"share 'kernels'.*per_channel = false.*\(node\.conv\*\.weight\.share\)"):
        plan_of({"weight": {"per_channel": True}, "node": {"conv*": {"weight": {"share": "kernels"}}}}, "academic_any")
    with pytest.raises(ConfigError, match=r"constants and computed tensors.*\(tensor\.w1\.share, tensor\.r\.share\)"):
        plan_of({"tensor": {"w1": {"share": "mixed"}, "r": {"share": "mixed"}}}, "academic_any")


def test_a_part_that_is_left_out_for_all_can_be_taken_back_for_one() -> None:
    for part, kept, gone in (("weight", "w2", "w1"), ("bias", "b2", "b1"), ("activation", "r", "x")):
        plan = plan_of({part: {"skip": True}, "node": {"conv2": {part: {"skip": False}}}}, "tensorrt_bias")
        assert kept in plan, part
        assert gone not in plan, part
    plan = plan_of({"activation": {"skip": True}, "tensor": {"s": {"skip": False}}})
    assert "s" in plan
    assert "c" not in plan


def test_one_reader_can_have_the_float_values_of_a_result_that_others_read_quantized() -> None:
    plan = plan_of({"node": {"conv2": {"activation": {"skip": True}}}})
    assert {edge.node for edge in plan["r"].edges or ()} == {"add1"}
    assert "skip" not in dict(plan["r"].set_by)
    assert plan_of({})["r"].edges is None


def test_what_is_an_output_of_the_model_too_has_one_form_and_a_note_says_so() -> None:
    config = {"extra_outputs": ["r"], "node": {"conv2": {"activation": {"skip": True}}}}
    plan = plan_of(config)
    assert plan["r"].edges is None
    assert any("'r' is quantized for 'conv2' all the same" in note for note in plan.notes)


def test_a_node_without_any_quantizer_of_its_own_is_float() -> None:
    plan = plan_of({"node": {"conv1": {"activation": {"skip": True}, "weight": {"skip": True}}}}, "tensorrt")
    assert "left out" in plan.left_float["conv1"]
    plan = plan_of({"node": {"add1": {"activation": {"skip": True}}}}, "tensorrt")
    assert "add1" in plan.left_float


def test_a_plan_knows_who_left_a_tensor_out() -> None:
    plan = plan_of({"tensor": {"r": {"skip": True}}, "node": {"fc": {"weight": {"skip": True}}}})
    assert plan.left_out == {"r": "tensor.r.skip", "w3": "node.fc.weight.skip"}
    assert QuantPlan.from_json(plan.to_json()).left_out == plan.left_out


def test_observers_of_biases_inputs_and_outputs_have_tables_too() -> None:
    plan = plan_of({"bias": {"bits": 8, "observer": "mse"}, "input": {"observer": "kl"}, "output": {"observer": "mse"}})
    assert (plan["b1"].observer, plan["x"].observer, plan["o"].observer) == ("mse", "kl", "mse")
    assert all("observer" in dict(plan[name].set_by) for name in ("b1", "x", "o"))


def test_what_a_derived_bias_cannot_have_is_a_note() -> None:
    plan = plan_of({"node": {"conv1": {"bias": {"minimum_scale": 0.1, "observer": "mse"}}}})
    assert plan["b1"].minimum_scale == 0
    assert dict(plan["b1"].set_by) == {}
    assert sum("of bias 'b1'" in note for note in plan.notes) == 2


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"output": {"bits": 4}}, "no output of the model has a quantizer (output.bits)"),
        ({"bias": {"observer": "mse"}}, "no bias has a quantizer (bias.observer)"),
        ({"fuse": [["GlobalAveragePool", "Flatten"]]}, "no GlobalAveragePool in front of it is quantized"),
    ],
)
def test_an_override_of_everything_that_finds_nothing_is_a_note(config: dict[str, Any], said: str) -> None:
    notes = plan_of(config, "academic").notes
    assert len([note for note in notes if said in note]) == 1, notes


def test_an_axis_that_a_tensor_does_not_have_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"channel_axis 7: weight 'w1' has 4 axes \(node\.conv1\.weight\.channel_axis"
    ):
        plan_of({"node": {"conv1": {"weight": {"per_channel": True, "channel_axis": 7}}}}, "academic_any")
    with pytest.raises(ConfigError, match="channel_axis 5: tensor 'r' has 4 axes"):
        plan_of({"tensor": {"r": {"per_channel": True, "channel_axis": 5}}}, "academic_any")


def test_the_line_of_a_fake_quantizer_counts_for_what_it_demands() -> None:
    placement = plan_of({"tensor": {"r": {"fake_quantizer": "tqt"}}}, "academic_any")["r"]
    assert dict(placement.set_by)["power_of_two"] == "tensor.r.fake_quantizer"


@pytest.mark.parametrize(("part", "name"), [("weight", "pact"), ("activation", "adaround")])
def test_a_fake_quantizer_for_another_role_is_an_error(part: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"fake-quantizer '{name}' is for.*node.conv1.{part}.fake_quantizer"):
        plan_of({"node": {"conv1": {part: {"fake_quantizer": name}}}}, "academic_any")


def test_a_rounding_that_the_file_cannot_have_is_refused_before_calibration() -> None:
    with pytest.raises(UnsupportedError, match=r"'r'.*rounded half_away, but QuantizeLinear.*tensor\.r\.rounding"):
        plan_of({"tensor": {"r": {"rounding": "half_away"}}}, "tensorrt")


# ---- force, fuse ---------------------------------------------------------------------------------------------------


def test_force_quantizes_what_the_rules_leave_and_says_who_wanted_it() -> None:
    assert "gate" in plan_of({}, "tensorrt").left_float
    for config in ({"force": ["gate"]}, {"op": {"Sigmoid": {"force": True}}}, {"node": {"ga*": {"force": True}}}):
        plan = plan_of(config, "tensorrt")
        assert plan.quantized["gate"].startswith("forced by")
        assert any(edge.node == "gate" for edge in plan["s"].edges or ())


def test_force_gives_results_a_quantizer_where_the_target_quantizes_results() -> None:
    assert "g" not in plan_of({}, "onnx_qnn")
    assert "g" in plan_of({"force": ["gate"]}, "onnx_qnn")


def test_force_of_what_cannot_be_quantized_is_an_error() -> None:
    model = network()
    shape = onnx.helper.make_node("Shape", ["r"], ["sizes"], name="sizes")
    model.graph.node.insert(2, shape)
    model.graph.output.append(onnx.helper.make_tensor_value_info("sizes", onnx.TensorProto.INT64, [4]))
    with pytest.raises(ConfigError, match=r"'sizes' cannot be forced.*int64"):
        make_plan(prepare(Graph.from_model(model), "tensorrt", {"force": ["sizes"]}))


def test_skip_and_force_of_equal_weight_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match=r"'gate' is to be left float.*take one of them out"):
        plan_of({"skip": ["gate"], "force": ["gate"]})
    assert plan_of({"skip": ["op:Sigmoid"], "force": ["gate"]}, "tensorrt").quantized["gate"]


def test_a_fused_chain_has_no_quantizer_inside() -> None:
    assert "s" in plan_of({})
    model = network()
    model.graph.node[5].input[0] = "r"  # so that the Sigmoid is all that reads the sum
    plan = make_plan(prepare(Graph.from_model(model), "qnn", {"fuse": [["Add", "Sigmoid"]]}))
    assert "s" not in plan
    assert plan.fused["gate"] == "add1"
    assert "g" in plan


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        (["Conv", "Sigmod"], "no operator 'Sigmod'.*Did you mean 'Sigmoid'"),
        (["Conv", "Mul"], "nowhere in the model"),
        (["Conv"], "two operators or more"),
    ],
)
def test_a_chain_that_is_nowhere_is_an_error(chain: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of({"fuse": [chain]})


# ---- nothing is silent --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"op": {"Cnov": {"skip": True}}}, "'op:Cnov' matches no node.*Did you mean 'Conv'"),
        ({"node": {"cnov2": {"skip": True}}}, "'cnov2' matches no node.*Did you mean 'conv"),
        ({"node": {"layer*": {"skip": True}}}, r"'layer\*' matches no node"),
        ({"tensor": {"w22": {"bits": 4}}}, "'w22' matches no tensor.*Did you mean 'w"),
        ({"skip": ["gat"]}, "'gat' matches no node.*Did you mean 'gate'"),
        ({"force": ["re:gat"]}, "'re:gat' matches no node"),
    ],
)
def test_an_override_that_matches_nothing_is_an_error_with_the_nearest_names(
    config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(config)


def test_an_override_that_finds_no_quantizer_is_a_note_of_the_plan() -> None:
    plan = plan_of({"node": {"relu1": {"weight": {"bits": 4}}}})
    assert plan.notes == ["no effect: there is no quantizer on any weight of 'relu1' (node.relu1.weight.bits)"]
    assert plan_of({"node": {"conv1": {"weight": {"bits": 4}}}}).notes == []


def test_two_overrides_of_one_shared_weight_are_an_error_that_names_the_tensor() -> None:
    model = network()
    model.graph.node[2].input[1] = "w_same"
    model.graph.node[0].input[1] = "w_same"
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 8
    same = numpy_helper.from_array(np.ones((8, 8, 3, 3), np.float32), "w_same")
    model.graph.initializer.append(same)
    graph = Graph.from_model(model)
    with pytest.raises(UnsupportedError, match=r'\[tensor."w_same"\]'):
        make_plan(prepare(graph, "qnn", {"node": {"conv1": {"weight": {"bits": 4}}}}))


def test_what_the_target_cannot_take_is_refused_with_tensor_and_remedy() -> None:
    with pytest.raises(UnsupportedError, match=r"'r'.*tensorrt takes one scale for an activation"):
        plan_of({"tensor": {"r": {"per_channel": True}}}, "tensorrt")


def test_an_override_that_no_format_has_names_the_place_where_it_was_said() -> None:
    with pytest.raises(ConfigError, match=r"'w1'.*node\.conv1\.weight\.narrow_range wants.*signed"):
        plan_of({"node": {"conv1": {"weight": {"dtype": "uint8", "narrow_range": True}}}})


def test_a_regular_expression_that_finds_nothing_gets_the_nearest_names_too() -> None:
    with pytest.raises(ConfigError, match=r"'re:cnov\\d' matches no node.*Did you mean 'conv"):
        plan_of({"node": {"re:cnov\\d": {"skip": True}}})
    said = read_config({}, assignments=[Assignment(("skip",), ["cnov1"], "--skip")])
    with pytest.raises(ConfigError, match=r"\(--skip\)$"):
        make_plan(prepare(Graph.from_model(network()), "qnn", said))
