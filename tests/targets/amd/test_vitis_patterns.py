"""The pattern language of layer_quantize_config: which layers an entry finds, and what it sets there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.targets.amd.dialect import translate
from tests.targets.amd.vitis_runs import CONV, RESNET, TRANSFORMER, became, graph_of, planned, translated, weight_of
from tests.zoo_graphs.net import Net

FOUR_BITS = {"type": "Pof2SQuantizer", "params": {"bit_width": 4}}


def quant(part: str, **more: Any) -> dict[str, Any]:
    return {"target_type": part, "target_name": "", "quantizer_config": FOUR_BITS, **more}


def found(pattern: dict[str, Any], name: str = RESNET, part: str = "weight") -> set[str]:
    """The nodes on which a pattern sets a quantizer of four bits."""
    config = translated({"layer_quantize_config": [{"quant_config": [quant(part)], **pattern}]}, name).config
    return {node for node, parts in config["node"].items() if parts.get(part, {}).get("dtype") == "int4"}


def operators(names: set[str], name: str = RESNET) -> set[str]:
    return {graph_of(name).node(node).op for node in names}


@pytest.mark.parametrize(
    ("layer_type", "ops"),
    [
        ("Conv2D", {"Conv"}),
        ("tensorflow.keras.layers.Conv2D", {"Conv"}),
        ("Conv", {"Conv"}),
        ("Dense", {"Gemm"}),
        ("Conv2D|Dense", {"Conv", "Gemm"}),
        ("Conv2D | tensorflow.keras.layers.Dense", {"Conv", "Gemm"}),
        ("BatchNormalization|Dense", {"Gemm"}),  # batch normalization is folded into its convolution
    ],
)
def test_layer_type_is_the_operators_that_it_becomes(layer_type: str, ops: set[str]) -> None:
    assert operators(found({"layer_type": layer_type})) == ops


@pytest.mark.parametrize(
    ("layer_type", "op"),
    [
        ("Activation", "Sigmoid"),
        ("ReLU", "Relu"),
        ("Add", "Add"),
        ("Multiply", "Mul"),
        ("MaxPooling2D", "MaxPool"),
        ("GlobalAveragePooling2D", "GlobalAveragePool"),
        ("UpSampling2D", "Resize"),
        ("Flatten", "Flatten"),
    ],
)
def test_layers_without_weights_have_outputs(layer_type: str, op: str) -> None:
    assert op in operators(found({"layer_type": layer_type}, part="output"))


def test_any_type_is_every_operator_that_computes() -> None:
    everything = found({"layer_type": ""}, part="output")
    computing = {node.name for node in graph_of(RESNET).nodes() if not node.name.startswith("/up/Con")}
    folded = {node.name for node in graph_of(RESNET).nodes("BatchNormalization")}
    assert everything == computing - folded


def test_dense_of_a_transformer_is_a_product_with_a_constant() -> None:
    names = found({"layer_type": "Dense"}, TRANSFORMER)
    assert "/encoder.0/attention/query/MatMul" in names
    assert "/encoder.0/attention/MatMul" not in names
    assert found({"layer_type": "Dot"}, TRANSFORMER, "output") == {
        f"/encoder.{block}/attention/MatMul{twin}" for block in (0, 1) for twin in ("", "_1")
    }


def depthwise() -> Graph:
    net = Net("depthwise")
    x = net.input("x", (1, 4, 8, 8))
    wide = net.node("Conv", x, net.weight(4, 1, 3, 3), name="depthwise", group=4, pads=[1, 1, 1, 1])
    net.node("Identity", net.node("Conv", wide, net.weight(2, 4, 1, 1), name="pointwise"), output="y")
    net.output("y", (1, 2, 8, 8))
    return Graph.from_model(net.model())


@pytest.mark.parametrize(("layer_type", "name"), [("DepthwiseConv2D", "depthwise"), ("Conv2D", "pointwise")])
def test_depthwise_convolutions_are_layers_of_their_own(layer_type: str, name: str) -> None:
    strategy = {"layer_quantize_config": [{"layer_type": layer_type, "quant_config": [quant("weight")]}]}
    assert list(translate(strategy, depthwise()).config["node"]) == [name]


@pytest.mark.parametrize("axis", [2, 3, -1])
def test_the_channels_of_a_depthwise_kernel_are_its_output_channels(axis: int) -> None:
    quantizer = {"type": "FSQuantizer", "params": {"per_channel": True, "channel_axis": axis}}
    target = {"target_type": "weight", "target_name": "depthwise_kernel", "quantizer_config": quantizer}
    entry = {"layer_type": "DepthwiseConv2D", "quant_config": [target]}
    made = translate({"strategy": "fs", "layer_quantize_config": [entry]}, depthwise()).config["node"]["depthwise"]
    assert made["weight"]["per_channel"] is True
    assert "channel_axis" not in made["weight"]


@pytest.mark.parametrize(
    ("layer_name", "count"),
    [
        (CONV, 1),
        ("layer1.conv1", 1),
        (r"layer1\.\d\.conv\d", 4),
        (r".*/conv3/Conv", 1),
        (r"layer\d\..*", 14),
    ],
)
def test_layer_name_is_a_regular_expression_over_nodes_and_modules(layer_name: str, count: int) -> None:
    assert len(found({"layer_type": "Conv2D", "layer_name": layer_name})) == count


def test_layer_name_finds_modules_of_the_newer_exporter() -> None:
    names = found({"layer_type": "Conv2D", "layer_name": r"layer1\.0\.conv1"}, "resnet_dynamo")
    assert len(names) == 1


@pytest.mark.parametrize(
    ("params", "layer_type", "wanted"),
    [
        ({"kernel_size": 1}, "Conv2D", {"conv1x1"}),
        ({"kernel_size": [3, 3]}, "Conv2D", {"strided", "dilated", "grouped", "same"}),
        ({"strides": 2}, "Conv2D", {"strided"}),
        ({"strides": [2, 2], "kernel_size": 3}, "Conv2D", {"strided"}),
        ({"dilation_rate": 2}, "Conv2D", {"dilated"}),
        ({"dilation": [2, 2]}, "Conv2D", {"dilated"}),
        ({"groups": 2}, "Conv2D", {"grouped"}),
        ({"filters": 6}, "Conv2D", {"same"}),
        ({"padding": "same", "strides": 1}, "Conv2D", {"same", "dilated"}),
        ({"padding": "valid"}, "Conv2D", {"conv1x1", "grouped"}),
        ({"padding": [1, 1, 1, 1]}, "Conv2D", {"same", "strided"}),
        ({"activation": "relu"}, "Conv2D", {"conv1x1"}),
        ({"activation": "linear"}, "Conv2D", {"strided", "dilated", "grouped", "same"}),
        ({"use_bias": True}, "Conv2D", {"same"}),
        ({"use_bias": False}, "Conv2D", {"conv1x1", "strided", "dilated", "grouped"}),
        ({"units": 3}, "Dense", {"dense"}),
        ({"dilations": [2, 2]}, "Conv", {"dilated"}),
    ],
)
def test_layer_params_are_conditions(params: dict[str, Any], layer_type: str, wanted: set[str]) -> None:
    entry = {"layer_type": layer_type, "layer_params": params, "quant_config": [quant("weight")]}
    assert set(translate({"layer_quantize_config": [entry]}, parameters()).config["node"]) == wanted


def parameters() -> Graph:
    net = Net("parameters")
    x = net.input("x", (1, 4, 16, 16))
    first = net.node("Conv", x, net.weight(4, 4, 1, 1), name="conv1x1")
    active = net.node("Relu", first)
    strided = net.node("Conv", active, net.weight(4, 4, 3, 3), name="strided", strides=[2, 2], pads=[1, 1, 1, 1])
    dilated = net.node("Conv", strided, net.weight(4, 4, 3, 3), name="dilated", dilations=[2, 2], pads=[2, 2, 2, 2])
    grouped = net.node("Conv", dilated, net.weight(4, 2, 3, 3), name="grouped", group=2)
    same = net.node("Conv", grouped, net.weight(6, 4, 3, 3), net.bias(6), name="same", pads=[1, 1, 1, 1])
    flat = net.node("Flatten", net.node("GlobalAveragePool", same))
    net.node("Gemm", flat, net.weight(6, 3), name="dense", output="y")
    net.output("y", (1, 3))
    return Graph.from_model(net.model())


GATE = {"layer_type": "Multiply", "layer_inputs": [{"layer_type": "UpSampling2D"}, {"layer_type": "Activation"}]}


def test_layer_inputs_are_matched_in_order() -> None:
    assert found(GATE, part="output") == {"/Mul"}
    with pytest.raises(
        ConfigError, match="None of that type has these inputs in this order: '/Mul' reads Resize, Sigmoid"
    ):
        found({**GATE, "layer_inputs": GATE["layer_inputs"][::-1]}, part="output")


def test_layer_inputs_nest() -> None:
    gate = {"layer_type": "Activation", "layer_inputs": [{"layer_type": "Conv2D", "layer_name": "gate"}]}
    assert found({"layer_type": "Multiply", "layer_inputs": [{"layer_type": ""}, gate]}, part="output") == {"/Mul"}
    other = {"layer_type": "Activation", "layer_inputs": [{"layer_type": "Conv2D", "layer_name": "layer1.*"}]}
    with pytest.raises(ConfigError, match="matches no layer"):
        found({"layer_type": "Multiply", "layer_inputs": [{"layer_type": ""}, other]}, part="output")


def test_layer_inputs_refer_to_patterns_by_name() -> None:
    gate = {"pattern_name": "gate", "layer_type": "Activation", "layer_inputs": [{"layer_type": "Conv2D"}]}
    product = {"layer_type": "Multiply", "layer_inputs": [{"layer_type": ""}, {"pattern": "gate"}]}
    made = translated({"layer_quantize_config": [gate, {**product, "quant_config": [quant("output")]}]})
    assert set(made.config["node"]) == {"/Mul"}


def test_inputs_of_the_model_are_input_layers() -> None:
    first = found({"layer_type": "Conv2D", "layer_inputs": [{"layer_type": "InputLayer"}]})
    assert first == {"/features/features.0/features.0.0/Conv"}


def test_a_pattern_inside_another_has_quantizers_of_its_own() -> None:
    inner = {"layer_type": "Activation", "quant_config": [quant("output")]}
    made = translated(
        {"layer_quantize_config": [{"layer_type": "Multiply", "layer_inputs": [{"layer_type": ""}, inner]}]}
    )
    assert made.config["node"] == {"/Sigmoid": {"output": made.config["node"]["/Sigmoid"]["output"]}}
    assert made.config["node"]["/Sigmoid"]["output"]["dtype"] == "int4"


def test_targets_are_weight_bias_and_output() -> None:
    targets = [
        {
            "target_type": part,
            "target_name": name,
            "quantizer_config": {"type": "Pof2SQuantizer", "params": {"bit_width": bits}},
        }
        for part, name, bits in (("weight", "kernel", 4), ("bias", "bias", 16), ("output", "", 6))
    ]
    strategy = {
        "layer_quantize_config": [{"layer_type": "Conv2D", "layer_name": "layer1.conv1", "quant_config": targets}]
    }
    plan = planned(strategy)
    assert weight_of(plan, "layer1.conv1").spec.dtype == "int4"
    assert plan["layer1.conv1.bias"].spec.dtype == "int16"
    assert plan["/layer1/relu/Relu_output_0"].spec.dtype == "int6"
    assert "layer_quantize_config[0].quant_config[0]" in dict(plan["layer1.conv1.weight"].set_by)["dtype"]


def test_bias_bits_of_the_document_keep_weights_unchanged() -> None:
    plan = planned({"bias_bit": 32})
    assert {placement.spec.dtype for placement in plan if placement.role == "bias"} == {"int32"}
    assert {placement.spec.dtype for placement in plan if placement.role == "weight"} == {"int8"}


def test_a_shared_quantizer_is_one_scale() -> None:
    own = {"name": "both", "type": "FSQuantizer", "params": {"bit_width": 8, "per_channel": False}}
    targets = [
        {"target_type": "bias", "target_name": "bias", "quantizer_config": own},
        {"target_type": "weight", "target_name": "kernel", "shared_quantizer": "both"},
    ]
    entry = {"layer_type": "Conv2D", "layer_name": "layer1.conv1", "quant_config": targets}
    made = translated({"strategy": "fs", "layer_quantize_config": [entry]}).config["node"][CONV]
    assert made["bias"]["share"] == made["weight"]["share"]
    assert made["weight"] == made["bias"]
    assert made["weight"]["per_channel"] is False


def test_lists_of_the_shipped_files_mean_the_same_as_targets() -> None:
    listed = {
        "layer_type": "Conv2D",
        "quantizable_weights": ["kernel"],
        "weight_quantizers": [FOUR_BITS],
        "quantizable_biases": ["bias"],
        "bias_quantizers": [FOUR_BITS],
        "quantizable_activations": ["activation"],
        "activation_quantizers": [FOUR_BITS],
    }
    targets = [quant("weight"), quant("bias"), quant("output")]
    one = translated({"layer_quantize_config": [listed]})
    other = translated({"layer_quantize_config": [{"layer_type": "Conv2D", "quant_config": targets}]})
    assert one.config == other.config


def test_quantizable_inputs_are_what_a_layer_reads() -> None:
    entry = {"layer_type": "Dense", "quantizable_inputs": [0], "input_quantizers": [FOUR_BITS]}
    assert "activation" in translated({"layer_quantize_config": [entry]}).config["node"]["/fc/Gemm"]


def test_values_of_the_user_for_inputs_are_for_what_layers_read() -> None:
    entry = {"layer_type": "Dense", "quantizable_inputs": [0], "input_quantizers": [FOUR_BITS]}
    made = translated({"layer_quantize_config": [entry], "input_bit": 6, "activation_bit": 7})
    assert made.config["node"]["/fc/Gemm"]["activation"]["dtype"] == "int6"
    assert made.sources["node", "/fc/Gemm", "activation", "dtype"] == "vitis: input_bit"


def test_an_empty_list_of_what_is_quantizable_is_no_quantizer() -> None:
    entry = {"layer_type": "Dense", "quantizable_weights": [], "weight_quantizers": []}
    assert translated({"layer_quantize_config": [entry]}).config["node"]["/fc/Gemm"]["weight"] == {"skip": True}


def test_later_entries_override_earlier_ones() -> None:
    first = {"layer_type": "Conv2D", "quant_config": [quant("weight")]}
    second = {
        "layer_name": "layer1.conv1",
        "quant_config": [quant("weight", quantizer_config={"type": "Pof2SQuantizer", "params": {"bit_width": 2}})],
    }
    config = translated({"layer_quantize_config": [first, second]}).config["node"]
    assert config[CONV]["weight"]["dtype"] == "int2"
    assert config["/gate/Conv"]["weight"]["dtype"] == "int4"
    assert translated({"layer_quantize_config": [second, first]}).config["node"][CONV]["weight"]["dtype"] == "int4"


def test_values_of_the_user_replace_those_of_every_entry() -> None:
    entry = {"layer_type": "Conv2D", "quant_config": [quant("weight")]}
    config = translated({"layer_quantize_config": [entry], "weight_bit": 6}).config
    assert config["weight"]["dtype"] == config["node"][CONV]["weight"]["dtype"] == "int6"


def full_strategy() -> list[dict[str, Any]]:
    """Entries as shipped files have them: one for each type of layer that a tool knows."""
    quantizer = {"quantizer_type": "Pof2SQuantizer", "quantizer_params": {"bit_width": 8, "method": 1, "round_mode": 1}}
    types = ("Conv2DTranspose", "LeakyReLU", "Add", "Concatenate", "MaxPooling2D", "UpSampling2D", "Multiply")
    listed = [
        {"layer_type": f"tensorflow.keras.layers.{name}", "quantizable_outputs": [0], "output_quantizers": [quantizer]}
        for name in types
    ]
    module = "tensorflow_model_optimization.python.core.quantization.keras.vitis.layers.vitis_pooling"
    return [
        *listed,
        {"layer_type": "tensorflow.keras.layers.ZeroPadding2D"},
        {"layer_type": f"{module}.VitisAveragePooling2D"},
    ]


def test_types_that_the_model_does_not_have_are_rows_of_a_full_strategy() -> None:
    made = translated({"layer_quantize_config": full_strategy()})
    assert became(made, "layer_quantize_config[0]") == "no layer of this type in the model"
    assert became(made, "layer_quantize_config[2]").startswith("5 nodes: ")
    assert "/up/Concat" not in made.config["node"]  # it puts a shape together


def test_a_single_type_that_the_model_does_not_have_is_an_error() -> None:
    with pytest.raises(ConfigError, match="It has no layer of type LeakyReLU; its operators: Add"):
        translated({"layer_quantize_config": [{"layer_type": "LeakyReLU", "quant_config": [quant("output")]}]})


def test_custom_layer_types_are_operators_of_other_domains() -> None:
    net = Net("custom")
    net.domains["mine"] = 1
    net.node("MyLayer", net.input("x", (1, 4)), domain="mine", name="own", output="y")
    net.output("y", (1, 4), np.float32)
    graph = Graph.from_model(net.model())
    entry = {"layer_type": "MyLayer", "quant_config": [quant("output")]}
    with pytest.raises(ConfigError, match="unknown layer type 'MyLayer'"):
        translate({"layer_quantize_config": [entry]}, graph)
    made = translate({"custom_layer_type": ["MyLayer"], "layer_quantize_config": [entry]}, graph)
    assert set(made.config["node"]) == {"own"}
    assert "not in the model: Other" in became(translate({"custom_layer_type": ["Other"]}, graph), "custom_layer_type")


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ({"layer_type": "Conv2d"}, "Did you mean 'Conv2D'"),
        ({"layer_type": "tensorflow.keras.layers.Dence"}, "Did you mean 'Dense'"),
        ({"layer_type": "SeparableConv2D"}, "is a DepthwiseConv2D and a Conv2D in ONNX"),
        ({"layer_types": "Conv2D"}, "Did you mean 'layer_type'"),
        ({"layer_type": "Conv2D", "layer_name": "layer1.conv11"}, r"Did you mean 'layer1.conv1'"),
        ({"layer_type": "Conv2D", "layer_name": "("}, "is not a regular expression"),
        ({"layer_type": "Conv2D", "layer_params": {"kernelsize": 3}}, "Did you mean 'kernel_size'"),
        ({"layer_type": "Conv2D", "layer_params": {"kernel_size": 7}}, r"values there: \[3, 3\], \[1, 1\]"),
        ({"layer_type": "Conv2D", "layer_params": {"units": 7}}, "none, it is no parameter of theirs"),
        ({"layer_type": "Conv2D", "layer_inputs": [{"pattern": "stem"}]}, "no pattern is called 'stem'"),
        ({"layer_type": "Conv2D", "layer_inputs": [{"pattern": "me"}], "pattern_name": "me"}, "in a circle: me -> me"),
        ({"layer_type": "Conv2D", "quant_config": [quant("weights")]}, "Did you mean 'weight'"),
        ({"layer_type": "Conv2D", "quant_config": [quant("weight", target_name="kernal")]}, "Did you mean 'kernel'"),
        ({"layer_type": "Conv2D", "quant_config": [quant("weight", target_name="bias")]}, "'bias' is a bias"),
        ({"layer_type": "Conv2D", "quant_config": [quant("weight", quantizer_config=None)]}, "neither of shared"),
        ({"layer_type": "Conv2D", "quant_config": [quant("weight", shared_quantizer="a")]}, "both of shared_quantizer"),
        ({"layer_type": "Conv2D", "quant_config": [{"target_type": "weight", "shared_quantizer": "a"}]}, "called 'a'"),
        ({"layer_type": "Conv2D", "quant_config": {}}, "must be a list"),
        ({"layer_type": "Conv2D", "quantizable_weights": ["kernel"]}, "give as many"),
        ({"layer_type": "Conv2D", "quantizable_outputs": [1], "output_quantizers": [FOUR_BITS]}, "only 0"),
    ],
)  # fmt: skip
def test_mistakes_in_patterns_are_answered_with_what_is_there(pattern: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        translated({"layer_quantize_config": [pattern]})


def test_pattern_names_are_unique() -> None:
    entry = {"pattern_name": "one", "layer_type": "Conv2D"}
    with pytest.raises(ConfigError, match=r"pattern_name 'one' is taken by layer_quantize_config\[0\]"):
        translated({"layer_quantize_config": [entry, entry]})
