"""Strategies on a file as tf2onnx writes it: names of Keras layers, layout, shared quantizers, whole strategies."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxq
from onnxq.compat.translation import Translation
from onnxq.errors import ConfigError, UnsupportedError
from onnxq.graph import Graph
from onnxq.session.prepare import make_plan, prepare
from onnxq.targets.amd.dialect import translate
from onnxq.types import QuantPlan
from tests.targets.amd.vitis_runs import became
from tests.zoo_graphs.net import Net

CONV = "model/stem/conv2d_1/BiasAdd"
ADD, SCALED, SLOPED = "model/add/add", "model/multiply/mul", "model/p_re_lu/prelu"
SIZE = 16


@cache
def keras_model(*, named: bool = True) -> onnx.ModelProto:
    """Channels last at the border, scopes of layers in all names, a stride of 2 with Keras' own padding."""
    net = Net("keras", opset=13)

    def layer(op: str, path: str, *inputs: str, **attributes: Any) -> str:
        return net.node(op, *inputs, name=path, output=f"{path}:0", **attributes)

    x = net.input("input_1", ("N", SIZE, SIZE, 3))
    x = layer("Transpose", "model/conv2d/BiasAdd__6", x, perm=[0, 3, 1, 2])
    weight, bias = net.weight(8, 3, 3, 3), net.bias(8)
    x = layer("Conv", "model/conv2d/BiasAdd", x, weight, bias, pads=[0, 0, 1, 1], strides=[2, 2])
    x = layer("Clip", "model/re_lu/Relu6", x, net.floats(0.0), net.floats(6.0))
    x = layer("Conv", "model/depthwise_conv2d/depthwise", x, net.weight(8, 1, 3, 3), group=8, pads=[1, 1, 1, 1])
    x = sloped = layer("PRelu", SLOPED, x, net.floats(net.rng.uniform(0.1, 0.3, (8, 1, 1)), "slope"))
    x = layer("Conv", CONV, x, net.weight(8, 8, 1, 1, name="kernel"), net.bias(8, "bias"))
    gate = layer("HardSigmoid", "model/activation/hard_sigmoid", x, alpha=1 / 6, beta=0.5)
    x = layer("Mul", SCALED, x, gate)
    x = layer("Add", ADD, x, sloped)
    x = layer("GlobalAveragePool", "model/global_average_pooling2d/Mean", x)
    x = layer("Flatten", "model/flatten/Reshape", x)
    x = layer("MatMul", "model/dense/MatMul", x, net.weight(8, 4))
    net.node("Add", x, net.bias(4), name="model/dense/BiasAdd", output="dense")
    net.output("dense", ("N", 4))
    model = net.model()
    if not named:
        for node in model.graph.node:
            node.name = ""
    return model


def translated(strategy: Any, *, named: bool = True) -> Translation:
    return translate(strategy, Graph.from_model(keras_model(named=named)))


def planned(strategy: Any) -> QuantPlan:
    return make_plan(prepare(keras_model(), config=translated(strategy)))


def quantized(strategy: Any, folder: Path) -> onnxq.Result:
    rng = np.random.default_rng(1)
    feeds = [{"input_1": rng.normal(0, 1, (1, SIZE, SIZE, 3)).astype(np.float32)} for _ in range(8)]
    return onnxq.quantize(keras_model(), data=feeds, config=translated(strategy), out=folder / "out")


def target(part: str, quantizer: dict[str, Any] | str) -> dict[str, Any]:
    given = {"shared_quantizer": quantizer} if isinstance(quantizer, str) else {"quantizer_config": quantizer}
    return {"target_type": part, "target_name": "", **given}


def quantizer(kind: str, name: str = "", **params: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "params": params}


KL = quantizer("Pof2SQuantizer", method="Min_KL")

# ---- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("name", ["conv2d_1", "stem", "stem/conv2d_1", "model/stem/conv2d_1"])
def test_layers_have_their_keras_names(name: str, named: bool) -> None:
    expected = CONV if named else f"Conv_{CONV}:0"
    assert translated({"ignore_layers": [name]}, named=named).config["skip"] == [expected]
    entry = {"layer_type": "Conv2D", "layer_name": name, "quant_config": [target("weight", KL)]}
    assert list(translated({"layer_quantize_config": [entry]}, named=named).config["node"]) == [expected]


def test_a_layer_of_several_nodes_is_left_out_as_a_whole() -> None:
    assert translated({"ignore_layers": ["dense"]}).config["skip"] == ["model/dense/MatMul", "model/dense/BiasAdd"]


def test_an_unknown_layer_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"ignore_layers: no layer .* 'conv2d_2'. Did you mean 'conv2d_1'"):
        translated({"ignore_layers": ["conv2d_2"]})


# ---- patterns ------------------------------------------------------------------------------------------------------


def found(pattern: dict[str, Any]) -> set[str]:
    entry = {"quant_config": [target("output", KL)], **pattern}
    return set(translated({"layer_quantize_config": [entry]}).config["node"])


def test_a_transpose_of_the_converter_is_no_layer() -> None:
    assert found({"layer_type": "Conv2D", "layer_inputs": [{"layer_type": "InputLayer"}]}) == {"model/conv2d/BiasAdd"}


def test_padding_of_a_strided_layer_is_same_as_keras_does_it() -> None:
    wanted = {"model/conv2d/BiasAdd", "model/depthwise_conv2d/depthwise"}
    assert found({"layer_type": "Conv2D|DepthwiseConv2D", "layer_params": {"padding": "same"}}) == wanted


def test_inputs_nest_three_deep() -> None:
    conv = {"layer_type": "Conv2D", "layer_inputs": [{"layer_type": "PReLU"}]}
    gate = {"layer_type": "Activation", "layer_inputs": [conv]}
    assert found({"layer_type": "Multiply", "layer_inputs": [conv, gate]}) == {SCALED}


def test_patterns_that_contain_each_other_are_refused_wherever_the_model_leads() -> None:
    one = {"pattern_name": "one", "layer_type": "Conv2D", "layer_inputs": [{"pattern": "other"}]}
    other = {"pattern_name": "other", "layer_type": "LSTM", "layer_inputs": [{"pattern": "one"}]}
    with pytest.raises(ConfigError, match="in a circle: one -> other -> one"):
        translated({"layer_quantize_config": [one, other]})


def test_a_part_has_one_target() -> None:
    entry = {"layer_type": "Conv2D", "quant_config": [target("weight", KL), target("weight", KL)]}
    with pytest.raises(ConfigError, match=r"quant_config\[1\] is for the weight, as .*quant_config\[0\] is"):
        translated({"layer_quantize_config": [entry]})


def test_a_layer_without_a_bias_is_told_apart() -> None:
    entry = {"layer_type": "Conv2D|DepthwiseConv2D", "quant_config": [target("bias", KL)]}
    made = translated({"layer_quantize_config": [entry]})
    assert "model/depthwise_conv2d/depthwise" not in made.config["node"]
    row = became(made, "layer_quantize_config[0].quant_config[0]")
    assert "no effect on model/depthwise_conv2d/depthwise: there is no bias" in row


def test_the_slope_of_a_prelu_is_a_weight() -> None:
    entry = {"layer_type": "PReLU", "quant_config": [{**target("weight", KL), "target_name": "alpha"}]}
    assert planned({"layer_quantize_config": [entry]})["slope"].observer == "min_kl"


# ---- shared quantizers, to the end ---------------------------------------------------------------------------------


def layer_with(first: str, second: str, shared: dict[str, Any]) -> dict[str, Any]:
    targets = [target(first, shared), target(second, shared["name"])]
    return {"layer_type": "Conv2D", "layer_name": "conv2d_1", "quant_config": targets}


def sum_with(shared: dict[str, Any]) -> dict[str, Any]:
    """The result of an addition and both of its inputs with one quantizer."""
    inputs = [
        {"layer_type": kind, "quant_config": [target("output", shared["name"])]} for kind in ("Multiply", "PReLU")
    ]
    return {"layer_type": "Add", "layer_inputs": inputs, "quant_config": [target("output", shared)]}


def scales_in_file(result: onnxq.Result, tensors: tuple[str, ...]) -> list[float]:
    """The scale that each of these float tensors is quantized with, or dequantized with where it is a constant."""
    model = onnx.load(result.model)
    stored = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    data = {node.input[0]: stored[node.input[1]] for node in model.graph.node if node.op_type.endswith("izeLinear")}
    return [float(data.get(tensor, data.get(f"{tensor}_quantized"))) for tensor in tensors]


@pytest.mark.parametrize("strategy", ["pof2s", "fs", "tqt"])
@pytest.mark.parametrize(("first", "second"), [("weight", "bias"), ("bias", "weight")])
def test_constants_that_share_a_quantizer_have_one_scale(
    strategy: str, first: str, second: str, tmp_path: Path
) -> None:
    kind = {"pof2s": "Pof2SQuantizer", "fs": "FSQuantizer", "tqt": "TQTQuantizer"}[strategy]
    entry = layer_with(first, second, quantizer(kind, "both"))
    result = quantized({"strategy": strategy, "layer_quantize_config": [entry]}, tmp_path)
    assert result.qparams["kernel"].scale == result.qparams["bias"].scale
    assert str(result.plan["kernel"].spec) == str(result.plan["bias"].spec)
    assert set(scales_in_file(result, ("kernel", "bias"))) == {float(result.qparams["kernel"].scale)}


@pytest.mark.parametrize(("strategy", "kind"), [("pof2s", "Pof2SQuantizer"), ("fs", "FSQuantizer")])
def test_outputs_of_a_pattern_and_its_inputs_share_a_quantizer(strategy: str, kind: str, tmp_path: Path) -> None:
    tensors = tuple(f"{name}:0" for name in (ADD, SCALED, SLOPED))
    entry = sum_with(quantizer(kind, "sum", method="No_OF"))
    shared = quantized({"strategy": strategy, "layer_quantize_config": [entry]}, tmp_path)
    written = json.loads((shared.model.parent / "qparams.json").read_text())["tensors"]
    (scale,) = {written[tensor]["scale"] for tensor in tensors}
    assert set(scales_in_file(shared, tensors)) == {float(np.float32(scale))}
    apart = quantized(strategy, tmp_path / "apart")
    assert len({float(apart.qparams[tensor].scale) for tensor in tensors}) > 1


def test_places_that_overlap_share_together() -> None:
    shared = quantizer("FSQuantizer", "both")
    entry = {
        "layer_type": "Multiply|Activation",
        "layer_inputs": [
            {"layer_type": "Conv2D", "quant_config": [target("output", "both")]},
            *[{"layer_type": ""}],
        ],
        "quant_config": [target("output", shared)],
    }
    single = {**entry, "layer_inputs": entry["layer_inputs"][:1]}
    config = translated({"strategy": "fs", "layer_quantize_config": [single]}).config["node"]
    gate = "model/activation/hard_sigmoid"
    assert config[gate]["output"]["share"] == config[CONV]["output"]["share"]
    both = translated({"strategy": "fs", "layer_quantize_config": [entry]}).config["node"]
    assert both[SCALED]["output"]["share"] == both[CONV]["output"]["share"]


@pytest.mark.parametrize("form", ["BFP16", "FP16"])
def test_a_shared_quantizer_without_a_scale_is_the_same_format(form: str, tmp_path: Path) -> None:
    entry = sum_with(quantizer("FSQuantizer", "sum", data_format=form))
    strategy = {"strategy": "fs", "layer_quantize_config": [entry]}
    result = quantized(strategy, tmp_path)
    tensors = [f"{name}:0" for name in (ADD, SCALED, SLOPED)]
    assert len({str(result.plan[tensor].spec) for tensor in tensors}) == 1
    assert {result.plan[tensor].spec.dtype for tensor in tensors} == {form.lower()}
    assert {float(result.qparams[tensor].scale) for tensor in tensors} == {1.0}
    row = became(translated(strategy), "layer_quantize_config[0].quant_config[0]")
    assert "there is no scale to share" in row


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (layer_with("output", "weight", quantizer("FSQuantizer", "both")), "'both' is the quantizer of the output"),
        (layer_with("weight", "bias", quantizer("FSQuantizer", "both", per_channel=True)), "per_channel to false"),
        (layer_with("bias", "weight", quantizer("FSQuantizer", "both", bit_width=32)), "follows from input and weight"),
    ],
)
def test_what_cannot_be_shared_is_refused_with_the_place(entry: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=rf"^layer_quantize_config\[0\].*{sentence}"):
        translated({"strategy": "fs", "layer_quantize_config": [entry]})


# ---- who decided ---------------------------------------------------------------------------------------------------


def test_a_value_of_the_user_in_place_of_an_entrys_is_named_as_what_decided() -> None:
    entry = {"layer_type": "Conv2D", "quant_config": [target("weight", quantizer("Pof2SQuantizer", method="Min_MSE"))]}
    placed = planned({"weight_method": "Min_KL", "layer_quantize_config": [entry]})["kernel"]
    assert placed.observer == "min_kl"
    decided = dict(placed.set_by)
    assert decided["observer"] == "vitis: weight_method"
    assert decided["dtype"] == "vitis: layer_quantize_config[0].quant_config[0]"


def test_scales_of_channels_of_activations_are_refused_with_the_key(tmp_path: Path) -> None:
    entry = {"layer_type": "Add", "quant_config": [target("output", quantizer("FSQuantizer", per_channel=True))]}
    with pytest.raises(UnsupportedError, match=r"one scale for an activation \(asked for by vitis: layer_quantize"):
        quantized({"strategy": "fs", "layer_quantize_config": [entry]}, tmp_path)


# ---- other widths than 8 bits --------------------------------------------------------------------------------------


def test_one_layer_of_sixteen_bits_leaves_the_dpu_to_the_others(tmp_path: Path) -> None:
    wide = quantizer("Pof2SQuantizer", bit_width=16)
    entry = {"layer_type": "Conv2D", "layer_name": "conv2d_1", "quant_config": [target("weight", wide)]}
    made = translated({"layer_quantize_config": [entry]})
    assert made.backend == "vitis:approximations=all,formats=any"
    assert "dtype int16 is no format of the DPU: it has a position in the files" in became(made, "strategy")
    result = quantized({"layer_quantize_config": [entry]}, tmp_path)
    listed = json.loads((result.model.parent / "model_quant_info.json").read_text())["param"]
    position = int(-np.log2(float(result.qparams["kernel"].scale)))
    assert listed["kernel"] == [[16, position]]
    assert position > 12  # the highest position of 8 bits
    neurons = onnx.load(result.model.parent / "model_fixneuron.onnx").graph.node
    assert any(onnx.helper.get_node_attr_value(n, "bit_width") == b"16" for n in neurons if n.op_type == "FixNeuron")
