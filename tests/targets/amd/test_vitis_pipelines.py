"""Every switch of the four pipelines: what it does to the settings, the graph, the parameters or the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.passes import run_passes
from onnxq.session.prepare import prepare
from onnxq.targets.amd.dialect import translate
from tests.networks.exported import exported
from tests.passes.equivalence import run_model
from tests.targets.amd.vitis_runs import RESNET, became, graph_of, planned, quantized, translated
from tests.zoo_graphs.net import Net

SECTION = {
    "remove_dropout": "optimize_pipeline_config",
    "fold_conv_bn": "optimize_pipeline_config",
    "convert_sigmoid_to_hard_sigmoid": "quantize_pipeline_config",
    "adjust_dpu_shift_cut": "refine_pipeline_config",
    "output_dir": "finalize_pipeline_config",
}


@pytest.mark.parametrize(("name", "section"), SECTION.items())
def test_a_switch_means_the_same_in_its_pipeline_and_by_itself(name: str, section: str) -> None:
    value: Any = "out" if name == "output_dir" else False
    nested, flat = translated({section: {name: value}}), translated({name: value})
    assert nested.config == flat.config
    assert nested.backend == flat.backend
    assert became(nested, f"{section}.{name}") == became(flat, name)


@pytest.mark.parametrize(
    ("name", "skipped"),
    [("remove_dropout", "remove_dropout"), ("fold_conv_bn", "fold_batchnorm")],
)
def test_a_pass_of_the_backend_can_be_left_out(name: str, skipped: str) -> None:
    assert translated({name: False}).config["skip_passes"] == [skipped]
    assert "skip_passes" not in translated({name: True}).config


def test_batch_normalization_that_is_not_folded_stays_in_the_graph() -> None:
    kept = prepare(exported(RESNET), config=translated({"fold_conv_bn": False, "convert_bn_to_dwconv": False}))
    assert kept.graph.nodes("BatchNormalization")
    folded = prepare(exported(RESNET), config=translated("pof2s"))
    assert not folded.graph.nodes("BatchNormalization")


def test_batch_normalization_becomes_a_depthwise_convolution() -> None:
    prepared = prepare(exported(RESNET), config=translated({"fold_conv_bn": False, "convert_bn_to_dwconv": True}))
    groups = [node.attrs.get("group", 1) for node in prepared.graph.nodes("Conv")]
    assert not prepared.graph.nodes("BatchNormalization")
    assert max(groups) > 1


def relu6_network() -> Net:
    net = Net("relu6")
    x = net.input("x", (1, 3, 8, 8))
    clipped = net.node("Clip", net.conv(x, 3, 4), net.floats(0.0), net.floats(6.0))
    net.node("Identity", net.conv(clipped, 4, 2), output="y")
    net.output("y", (1, 2, 8, 8))
    return net


def test_relu6_becomes_relu() -> None:
    model = relu6_network().model()
    for wanted, op in ((True, "Relu"), (False, "Clip")):
        config = translate({"convert_relu6_to_relu": wanted}, Graph.from_model(model))
        prepared = prepare(model, config=config)
        assert prepared.graph.nodes(op)
        assert not prepared.graph.nodes("Relu" if op == "Clip" else "Clip")


def test_relu6_to_relu_keeps_values_above_six_and_runs_once() -> None:
    model = relu6_network().model()
    graph = Graph.from_model(model)
    first, second = run_passes(graph, ["relu6_to_relu", "relu6_to_relu"])
    assert len(first.changed) == 1
    assert second.changed == ()
    feeds = {"x": np.random.default_rng(0).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)}
    low = {"x": feeds["x"] * np.float32(0.01)}  # nothing reaches 6
    after = graph.to_model()
    np.testing.assert_array_equal(run_model(model, low)["y"], run_model(after, low)["y"])
    high = {"x": feeds["x"] * np.float32(1000)}
    assert not np.allclose(run_model(model, high)["y"], run_model(after, high)["y"])


def test_other_bounds_than_zero_and_six_stay() -> None:
    net = Net("clip")
    x = net.input("x", (1, 4))
    net.node("Clip", x, net.floats(0.0), net.floats(4.0), output="y")
    net.output("y", (1, 4))
    graph = Graph.from_model(net.model())
    assert run_passes(graph, ["relu6_to_relu"])[0].changed == ()


def test_sigmoid_is_quantized_where_it_is_computed_as_hard_sigmoid() -> None:
    hard, soft = (planned({"convert_sigmoid_to_hard_sigmoid": value}) for value in (True, False))
    assert "/Sigmoid" in hard.quantized
    assert "/Sigmoid" in soft.left_float


@pytest.mark.parametrize(
    ("name", "simulations"),
    [
        ("convert_hard_sigmoid_to_dpu_version", {"dpu_hard_sigmoid", "dpu_hard_swish", "dpu_sigmoid"}),
        ("convert_average_pooling2d_to_dpu_version", {"dpu_average_pool"}),
        ("convert_leaky_relu_to_dpu_version", {"dpu_leaky_relu"}),
    ],
)
def test_an_operator_is_simulated_as_onnx_has_it(name: str, simulations: set[str]) -> None:
    usual = set(translated("pof2s").config["skip_simulations"])
    assert set(translated({name: False}).config["skip_simulations"]) - usual == simulations
    backend = prepare(exported(RESNET), config=translated({name: False})).backend
    assert not simulations & set(backend.simulations)
    assert simulations <= set(prepare(exported(RESNET), config=translated({name: True})).backend.simulations)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("adjust_dpu_sigmoid", "hard_sigmoid"),
        ("adjust_dpu_shift_cut", "shift_cut"),
        ("adjust_dpu_shift_bias", "shift_bias"),
        ("adjust_dpu_shift_bias_leakyrelu", "shift_bias_leaky"),
        ("adjust_dpu_shift_read", "shift_read"),
        ("adjust_dpu_shift_write", "shift_write"),
        ("adjust_dpu_shift_swish", "shift_swish"),
        ("align_concat", "align_concat"),
        ("align_pool", "align_pool"),
    ],
)
def test_a_rule_on_positions_can_be_left_out(name: str, rule: str) -> None:
    off = translated({name: False})
    assert off.config["skip_refinements"] == [f"dpu_positions.{rule}"]
    assert "skip_refinements" not in translated({name: True}).config
    backend = prepare(exported(RESNET), config=off).backend
    assert backend.skipped_rules == {"dpu_positions": (rule,)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("separate_conv_act", True),
        ("convert_tf_op_to_keras", True),
        ("separable_conv", True),
        ("onnx_opset_version", 13),
        ("output_dir", "./results"),
    ],
)
def test_switches_without_a_meaning_for_onnx_say_why(name: str, value: Any) -> None:
    assert became(translated({name: value}), name).startswith("no effect: ")


def test_no_quantizer_stands_between_a_layer_and_its_batch_normalization() -> None:
    fused = translated({"strategy": "fs", "no_quant_in_conv_bn_act": True})
    assert ["Conv", "BatchNormalization", "Relu"] in fused.config["fuse"]
    apart = translated({"strategy": "fs", "no_quant_in_conv_bn_act": False})
    assert "fuse" not in apart.config
    inside = "/features/features.0/features.0.0/Conv_output_0"
    assert inside not in planned({"strategy": "fs", "no_quant_in_conv_bn_act": True})
    assert inside in planned({"strategy": "fs", "no_quant_in_conv_bn_act": False})


@pytest.mark.parametrize(
    ("name", "producer"),
    [("no_quant_in_conv_act", "/layer1/conv1/Conv"), ("no_quant_in_add_act", "/layer1/layer1.1/Add")],
)
@pytest.mark.parametrize("strategy", ["pof2s", "fs"])
def test_a_quantizer_stands_between_a_layer_and_its_activation_if_it_is_asked_for(
    name: str, producer: str, strategy: str, tmp_path: Path
) -> None:
    given = {"strategy": strategy, "fold_conv_bn": True}
    inside = graph_of(RESNET).node(producer).outputs[0].name
    assert became(translated({**given, name: True}), name).startswith("as the backend does it")
    assert inside not in planned({**given, name: True})
    plan = planned({**given, name: False})
    assert inside in plan
    others = {"no_quant_in_conv_act": "/layer1/layer1.1/Add", "no_quant_in_add_act": "/layer1/conv1/Conv"}[name]
    assert graph_of(RESNET).node(others).outputs[0].name not in plan
    result = quantized({**given, name: False}, tmp_path)
    assert inside in result.qparams.entries


def test_a_model_without_such_activations_says_so() -> None:
    net = Net("plain")
    net.output(net.conv(net.input("x", (1, 3, 8, 8)), 3, 4))
    made = translate({"no_quant_in_conv_act": False}, Graph.from_model(net.model()))
    assert became(made, "no_quant_in_conv_act").startswith("no effect: no activation of the model")


def test_a_compiler_that_is_not_asked_is_a_warning() -> None:
    asked = translated({"quantize_with_xcompiler": True})
    assert len(asked.unfulfilled) == 1
    assert "does not ask a compiler" in asked.unfulfilled[0]
    assert translated({"quantize_with_xcompiler": False}).unfulfilled == ()


@pytest.mark.parametrize(("value", "dtype"), [("float16", "fp16"), ("bfloat16", "bf16")])
def test_convert_datatype_is_a_format_without_integers(value: str, dtype: str) -> None:
    plan = planned({"strategy": "fs", "convert_datatype": value})
    assert {placement.spec.dtype for placement in plan} == {dtype}


def test_convert_datatype_is_not_for_power_of_two_scales() -> None:
    with pytest.raises(ConfigError, match="needs the strategy fs"):
        translated({"convert_datatype": "float16"})
    with pytest.raises(ConfigError, match="cannot convert to 'int3'"):
        translated({"strategy": "fs", "convert_datatype": "int3"})


def test_conversion_to_float_scales_leaves_the_files_of_positions_out(tmp_path: Path) -> None:
    out = quantized({"convert_to_fs_quantize_strategy": True}, tmp_path).model.parent
    assert not list(out.glob("*quant_info*"))
    assert (out / "model.onnx").exists()
    assert (
        translated({"strategy": "tqt", "convert_to_pof2s_quantize_strategy": True}).config.get("skip_emitters") is None
    )
    assert (
        "fix_neuron"
        in translated({"strategy": "tqt", "convert_to_pof2s_quantize_strategy": False}).config["skip_emitters"]
    )


def test_a_file_that_is_not_onnx_is_refused() -> None:
    assert became(translated({"output_format": "onnx"}), "output_format").startswith("ONNX")
    with pytest.raises(ConfigError, match="onnxq writes ONNX, not h5"):
        translated({"output_format": "h5"})


def test_nothing_of_the_dpu_applies_to_float_scales() -> None:
    made = translated({"strategy": "fs", "adjust_dpu_shift_cut": False, "convert_leaky_relu_to_dpu_version": False})
    assert "skip_refinements" not in made.config
    assert "skip_simulations" not in made.config
    assert "strategy fs has float scales" in became(made, "adjust_dpu_shift_cut")


@pytest.mark.parametrize(
    ("strategy", "near"),
    [
        ({"optimise_pipeline_config": {}}, "Did you mean 'optimize_pipeline_config'"),
        ({"optimize_pipeline_config": {"fold_conv_bm": True}}, "Did you mean 'fold_conv_bn'"),
        ({"adjust_dpu_shift_cuts": True}, "Did you mean 'adjust_dpu_shift_cut'"),
        ({"fold_conv_bn": "yes"}, "must be true or false"),
        ({"fold_conv_bn": True, "optimize_pipeline_config": {"fold_conv_bn": True}}, "given twice"),
        ({"cle_balance_method": "maxx"}, "Did you mean 'max'"),
        ({"output_format": "onxx"}, "Did you mean 'onnx'"),
        ({"refine_pipeline_config": []}, "must hold keys and values"),
    ],
)
def test_typos_in_switches_are_answered_with_the_nearest_name(strategy: dict[str, Any], near: str) -> None:
    with pytest.raises(ConfigError, match=near):
        translated(strategy)


def test_a_row_says_that_a_quantizer_stands_before_batch_normalization() -> None:
    apart = translated({"strategy": "fs", "no_quant_in_conv_bn_act": False})
    assert "quantizer of its own" in became(apart, "no_quant_in_conv_bn_act")
    folded = translated({"strategy": "fs", "no_quant_in_conv_bn_act": False, "fold_conv_bn": True})
    assert became(folded, "no_quant_in_conv_bn_act").startswith("no effect: there is no such chain")


def test_rows_of_simulations_name_those_that_there_are() -> None:
    name = "convert_hard_sigmoid_to_dpu_version"
    off = translated({name: False})
    assert became(off, name).startswith("skip_simulations = dpu_hard_sigmoid, dpu_hard_swish, dpu_sigmoid")
    usual = translated({name: True, "convert_sigmoid_to_hard_sigmoid": False})
    assert became(usual, name) == "`onnxq simulate` runs dpu_hard_sigmoid, dpu_hard_swish"


def test_both_sides_of_pooling_have_scales_of_their_own_without_align_pool() -> None:
    sides = ("/Mul_output_0", "/avgpool/GlobalAveragePool_output_0")
    for wanted, leaders in ((True, 1), (False, 2)):
        plan = planned({"align_pool": wanted})
        assert len({plan.leader(tensor) for tensor in sides}) == leaders
    assert "skip_ties" in became(translated({"align_pool": False}), "align_pool")
