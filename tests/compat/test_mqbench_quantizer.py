"""extra_quantizer_dict: which nodes are quantized besides the target's, and which are not."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.compat.mqbench import translate
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.session.prepare import make_plan, prepare
from onnxq.targets.amd import dialect as vitis
from onnxq.targets.sophgo import dialect as sophgo
from onnxq.types import QuantPlan
from tests.compat.mqbench_plans import RESNET, RESNET_DYNAMO, SCHEMES, TRANSFORMER, became, planned, translated
from tests.networks.exported import exported
from tests.passes.equivalence import build_model

WHERE = "extra_quantizer_dict"
CONV = "/layer1/layer1.1/conv1/Conv"
GELU = ["encoder_0_activation", "encoder_1_activation"]


def lists(**values: Any) -> dict[str, Any]:
    return {WHERE: values}


def academic(**values: Any) -> dict[str, Any]:
    return {"extra_qconfig_dict": SCHEMES, WHERE: values}


@pytest.mark.parametrize("given", [operator.add, "operator.add", "add"])
def test_an_additional_function_is_quantized(given: Any) -> None:
    assert "/layer3/Add" in planned(academic(), "Academic").left_float
    plan = planned(academic(additional_function_type=[given]), "Academic")
    assert "/layer3/Add" in plan.quantized
    assert {"/layer3/conv3/Conv_output_0", "/layer2/bn2/BatchNormalization_output_0"} <= set(plan.placements)


@pytest.mark.parametrize(
    "given",
    [
        ("torch.nn.Upsample",),
        "torch.nn.Upsample",
        ["torch.nn.Upsample"],
        "(torch.nn.Upsample)",
        "['torch.nn.Upsample', torch.nn.PReLU,]",
    ],
)
def test_an_additional_module_type_is_quantized_as_tuple_list_or_alone(given: Any) -> None:
    assert "/up/Resize" in planned(academic(), "Academic").left_float
    assert "/up/Resize" in planned(academic(additional_module_type=given), "Academic").quantized


def test_classes_and_functions_of_torch_are_taken_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    extra = academic(
        additional_function_type=[torch.nn.functional.sigmoid, torch.mul], additional_module_type=(torch.nn.Upsample)
    )
    plan = planned(extra, "Academic")
    assert {"/up/Resize", "/Sigmoid", "/Mul"} <= set(plan.quantized)


@pytest.mark.parametrize(("network", "node"), [(RESNET, "/layer3/Add"), (RESNET_DYNAMO, "node_add_274")])
def test_an_additional_node_is_quantized(network: str, node: str) -> None:
    assert node in planned(academic(), "Academic", network).left_float
    assert node in planned(academic(additional_node_name=["add_4"]), "Academic", network).quantized


def test_the_row_of_a_type_that_the_target_quantizes_anyway_says_so() -> None:
    translation = translated(lists(additional_module_type=["torch.nn.Conv2d"]))
    assert "tensorrt has a rule for Conv anyway" in became(translation, f"{WHERE}.additional_module_type")


def read_by(plan: QuantPlan, node: str) -> set[int]:
    """The inputs of a node that have quantizers."""
    return {edge.port for placement in plan for edge in placement.edges or () if edge.node == node}


def test_an_additional_sum_has_both_inputs_quantized_on_tensorrt() -> None:
    sums = [name for name in planned(None).quantized if "Add" in name]
    assert len(sums) > 1
    assert all(len(read_by(planned(None), name)) == 1 for name in sums)
    extra = lists(additional_function_type=[operator.add])
    translation = translated(extra)
    assert translation.config["residual"] == "both"
    assert "residual = both" in became(translation, f"{WHERE}.additional_function_type")
    assert all(read_by(planned(extra), name) == {0, 1} for name in sums)


def test_an_additional_sum_by_its_name_leaves_the_rule_of_the_others() -> None:
    plan = planned(lists(additional_node_name=["add_4"]))
    assert read_by(plan, "/layer3/Add") == {0, 1}
    assert len(read_by(plan, "/layer1/layer1.0/Add")) == 1
    assert "residual" not in translated(lists(additional_node_name=["add_4"])).config


def test_sums_of_one_kind_leave_the_rule_of_the_others() -> None:
    extra = lists(additional_function_type=["torch.nn.quantized.FloatFunctional.add_scalar"])
    network = Graph.from_model(residual_and_shifted())
    translation = translate(extra, network, "Tensorrt")
    assert "residual" not in translation.config
    said = became(translation, f"{WHERE}.additional_function_type")
    assert said.startswith("force: shifted; quantizers on both inputs of an Add")
    plan = make_plan(prepare(residual_and_shifted(), translation.backend, translation))
    assert "shifted" in plan.quantized
    assert len(read_by(plan, "sum")) == 1


def residual_and_shifted() -> onnx.ModelProto:
    weight = np.random.default_rng(0).normal(0, 1, (4, 4, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first"),
        helper.make_node("Conv", ["a", "w"], ["b"], name="second"),
        helper.make_node("Add", ["b", "a"], ["c"], name="sum"),
        helper.make_node("Add", ["c", "number"], ["d"], name="shifted"),
        helper.make_node("Conv", ["d", "w"], ["y"], name="last"),
    ]
    return build_model(nodes, {"x": [1, 4, 8, 8]}, ["y"], {"w": weight, "number": np.float32(0.5)})


def test_a_type_that_the_model_does_not_have_is_named_as_without_effect() -> None:
    translation = translated(lists(additional_module_type=("torch.nn.ConvTranspose2d",)))
    assert became(translation, f"{WHERE}.additional_module_type").startswith("no effect")
    assert "force" not in translation.config


def test_an_excluded_module_is_float_with_its_weight() -> None:
    assert CONV in planned(None).quantized
    plan = planned(lists(exclude_module_name=["layer1.1.conv1"]))
    assert CONV in plan.left_float
    assert "layer1.1.conv1.weight" not in plan
    plan = planned(lists(exclude_module_name=["layer1.1"]))
    assert {CONV, "/layer1/layer1.1/conv2/Conv", "/layer1/layer1.1/Add"} <= set(plan.left_float)


def test_the_activation_of_a_layer_may_be_excluded_like_in_the_document() -> None:
    before, after = planned(None, "SNPE"), planned(lists(exclude_module_name=["layer2.1.relu"]), "SNPE")
    assert before.diff(after)


@pytest.mark.parametrize("given", [operator.mul, "torch.mul"])
def test_an_excluded_function_is_float(given: Any) -> None:
    assert "/Mul" in planned(None, "SNPE").quantized
    assert "/Mul" in planned(lists(exclude_function_type=[given]), "SNPE").left_float


@pytest.mark.parametrize("name", ["layer1_1_conv1", CONV])
def test_an_excluded_node_is_float(name: str) -> None:
    assert CONV in planned(lists(exclude_node_name=[name])).left_float


def test_an_additional_node_wins_over_its_exclusion() -> None:
    extra = lists(additional_node_name=["layer1_1_conv1"], exclude_node_name=["layer1_1_conv1", "layer3_conv1"])
    plan = planned(extra)
    assert CONV in plan.quantized
    assert "/layer3/conv1/Conv" in plan.left_float
    assert "additional_node_name asks for it" in became(translated(extra), f"{WHERE}.exclude_node_name")


def test_an_excluded_module_keeps_its_float_weight_where_its_node_is_additional() -> None:
    extra = lists(additional_node_name=["layer1_1_conv1"], exclude_module_name=["layer1.1.conv1"])
    plan = planned(extra)
    assert "layer1.1.conv1.weight" not in plan
    assert "/layer1/layer1.0/relu_1/Relu_output_0" in plan
    assert "float weight" in became(translated(extra), f"{WHERE}.exclude_module_name")


def test_an_exclusion_wins_over_an_additional_type() -> None:
    extra = academic(additional_function_type=[operator.add], exclude_node_name=["add_4"])
    plan = planned(extra, "Academic")
    assert "/layer3/Add" in plan.left_float
    assert "/layer1/layer1.0/Add" in plan.quantized
    both = academic(additional_function_type=[operator.add], exclude_function_type=[operator.add])
    assert "/layer3/Add" in planned(both, "Academic").left_float


def test_a_whole_attention_can_be_excluded() -> None:
    extra = {"extra_qconfig_dict": SCHEMES, WHERE: {"exclude_module_name": ["encoder.0.attention"]}}
    plan = planned(extra, "Academic_NLP", TRANSFORMER)
    assert "/encoder.0/attention/MatMul" in plan.left_float
    assert "/encoder.1/attention/MatMul" in plan.quantized


def test_academic_mode_is_an_option_of_openvino_and_named_elsewhere() -> None:
    translation = translated(lists(academic_mode=True), "OPENVINO")
    assert translation.backend == "openvino:academic=yes"
    weight = "layer3.conv1.weight"
    assert not planned(None, "OPENVINO")[weight].spec.narrow_range
    assert planned(lists(academic_mode=True), "OPENVINO")[weight].spec.narrow_range
    assert translated(lists(academic_mode=False), "OPENVINO:academic=yes").backend == "openvino:academic=no"
    assert became(translated(lists(academic_mode=True)), f"{WHERE}.academic_mode").startswith("no effect")


def test_an_empty_list_gets_its_row() -> None:
    keys = ("additional_function_type", "additional_module_type", "additional_node_name", "exclude_module_name")
    translation = translated(lists(**dict.fromkeys(keys, ())))
    assert translation.config == {"effort": 0}
    for key in keys:
        assert became(translation, f"{WHERE}.{key}") == "no effect: the list is empty"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"additional_function_type": ["operator.ad"]}, "operator.add"),
        ({"additional_module_type": ("torch.nn.Upsmaple",)}, "torch.nn.Upsample"),
        ({"additional_node_name": ["layer1_1_conv7"]}, "layer1_1_conv"),
        ({"exclude_node_name": ["layer1_1_cnv1"]}, "layer1_1_conv1"),
        ({"exclude_module_name": ["layer1.1.conv9"]}, "layer1.1.conv"),
        ({"exclude_function_type": ["torch.mull"]}, "torch.mul"),
        ({"exclude_node_name": [7]}, "holds names"),
        ({"exclude_module_name": [""]}, "path of a module is empty"),
        ({"exclude_node_name": 7}, "must be a list, it is 7"),
        ({"academic_mode": "yes"}, "must be True or False, got 'yes'"),
        ({"exclude_module_nam": []}, "Did you mean 'exclude_module_name'"),
    ],
)
def test_wrong_names_are_errors_with_the_nearest(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(lists(**values))


def made(nodes: list[onnx.NodeProto], kind: int = TensorProto.FLOAT) -> Graph:
    x = helper.make_tensor_value_info("x", kind, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "net", [x], [y], [weight])
    return Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_what_passes_remove_is_named_as_without_effect() -> None:
    graph = made(
        [helper.make_node("Dropout", ["x"], ["a"], "drop"), helper.make_node("MatMul", ["a", "w"], ["y"], "fc")]
    )
    translation = translate(lists(exclude_function_type=["torch.nn.functional.dropout"]), graph, "Tensorrt")
    assert translation.config == {"effort": 0}
    assert became(translation, f"{WHERE}.exclude_function_type").startswith("no effect")


@pytest.mark.parametrize("step", [1, -1])
def test_what_is_folded_is_named_as_without_effect_in_whatever_order_the_nodes_are(step: int) -> None:
    nodes = [
        helper.make_node("Neg", ["w"], ["a"], "first"),
        helper.make_node("Neg", ["a"], ["b"], "second"),
        helper.make_node("MatMul", ["x", "b"], ["y"], "fc"),
    ]
    translation = translate(lists(exclude_function_type=["torch.neg"]), made(nodes[::step]), "Tensorrt")
    assert translation.config == {"effort": 0}
    assert became(translation, f"{WHERE}.exclude_function_type").startswith("no effect")


@pytest.mark.parametrize("inputs", [["c", "x"], ["x", "c"]])
def test_a_sum_with_an_input_of_the_model_can_be_excluded(inputs: list[str]) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["c"], "fc"), helper.make_node("Add", inputs, ["y"], "sum")]
    translation = translate(lists(exclude_function_type=[operator.add]), made(nodes), "Tensorrt")
    assert translation.config["skip"] == ["sum"]


def test_sums_of_integers_are_not_forced() -> None:
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"], "integers"),
        helper.make_node("Cast", ["a"], ["b"], "cast", to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["b", "w"], ["c"], "fc"),
        helper.make_node("Add", ["c", "b"], ["y"], "floats"),
    ]
    extra = academic(additional_function_type=[operator.add])
    assert translate(extra, made(nodes, TensorProto.INT64), "Academic").config["force"] == ["floats"]


@pytest.mark.parametrize("values", [{"additional_module_type": ("torch.nn.GELU",)}, {"additional_node_name": GELU}])
def test_a_layer_in_several_nodes_has_its_quantizer_in_front_not_inside(values: dict[str, Any]) -> None:
    before = planned(academic(), "Academic_NLP", TRANSFORMER)
    plan = planned(academic(**values), "Academic_NLP", TRANSFORMER)
    new = set(plan.placements) - set(before.placements)
    assert new == {f"/encoder.{number}/linear1/Add_output_0" for number in (0, 1)}
    readers = {edge.node for edge in plan["/encoder.0/linear1/Add_output_0"].edges or ()}
    assert readers == {"/encoder.0/activation/Div", "/encoder.0/activation/Mul"}
    assert not plan.notes


def test_a_layer_in_several_nodes_has_its_result_quantized_where_the_target_does_so() -> None:
    before = planned(None, "ONNX_QNN", TRANSFORMER)
    plan = planned(lists(additional_module_type=("torch.nn.GELU",)), "ONNX_QNN", TRANSFORMER)
    new = set(plan.placements) - set(before.placements)
    assert "/encoder.0/activation/Mul_1_output_0" in new
    assert not new & {f"/encoder.0/activation/{name}_output_0" for name in ("Div", "Erf", "Add", "Mul")}


def with_dead_readers() -> onnx.ModelProto:
    """The network with a node on every convolution's result that no output depends on."""
    model = onnx.load(exported(RESNET))
    for number, node in enumerate([node for node in model.graph.node if node.op_type in ("Conv", "Add")]):
        model.graph.node.append(
            helper.make_node("Mul", [node.output[0]] * 2, [f"dead_{number}"], name=f"dead/{number}")
        )
    return model


def test_what_no_output_depends_on_changes_no_setting() -> None:
    extra = {
        **lists(additional_function_type=[operator.add], exclude_function_type=[operator.mul]),
        "extra_fuse_dict": {"additional_fuser_method_mapping": {("torch.nn.Conv2d", "torch.nn.Sigmoid"): None}},
    }
    dead = translate(extra, Graph.from_model(with_dead_readers()), "Tensorrt")
    assert dead.config == translated(extra).config
    only = translate(lists(exclude_node_name=["dead/0"]), Graph.from_model(with_dead_readers()), "Tensorrt")
    assert became(only, f"{WHERE}.exclude_node_name").startswith("no effect")


def test_dead_readers_change_no_setting_of_the_other_tools() -> None:
    entries = {
        "quant_dict": {"chip": "BM1688", "quantmode": "weight_activation", "strategy": "CNN"},
        "extra_qconfig_dict": {
            "object_type": {"qnniqat.ConvReLU2d_sophgo": {"mode": "weight", "wobserver": "MSEObserver"}},
            "module_name": {"layer1.conv1": {"mode": "activation", "aobserver": "EMAMinMaxObserver"}},
        },
    }
    pattern = {"pattern_name": "p", "layer_type": "ReLU", "layer_inputs": [{"layer_type": "Conv2D"}]}
    target = {
        "target_name": "output",
        "target_type": "output",
        "quantizer_config": {"type": "Pof2SQuantizer", "params": {"method": "No_OF"}},
    }
    strategy = {"layer_quantize_config": [{**pattern, "quant_config": [target]}]}
    for tool, given in ((sophgo.translate, entries), (vitis.translate, strategy)):
        alive = tool(given, Graph.load(exported(RESNET)))
        assert alive.config == tool(given, Graph.from_model(with_dead_readers())).config
        assert alive.config["node"]
