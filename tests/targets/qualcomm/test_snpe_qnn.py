"""The targets of Qualcomm: every operator between quantizers, the scales that the HTP wants, and the files beside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.errors import ConfigError
from onnxq.targets import get_backend
from onnxq.targets.qualcomm.encodings_versions import read_encodings
from onnxq.types import PerChannel
from tests.golden_graphs import GOLDEN
from tests.zoo_graphs.net import Net

CNNS = ("residual", "depthwise", "concat", "detector")
ENCODINGS = tuple(f"model_encodings_{version}.json" for version in ("0.6.1", "1.0.0", "2.0.0"))


def quantized(model: str, backend: str, folder: Path) -> onnxq.Result:
    golden = GOLDEN[model]()
    return onnxq.quantize(golden.model, backend=backend, data=golden.samples, out=folder, config={"effort": 0})


def small_net(opset: int = 20) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """A convolution, then one operator of each kind that has a rule of its own."""
    net = Net("qualcomm", opset=opset)
    x = net.input("x", [1, 3, 8, 8])
    conv = net.node("Conv", x, net.weight(8, 3, 3, 3), net.bias(8), pads=[1] * 4)
    gate = net.node("Sigmoid", conv)
    curve = net.node("Tanh", conv)
    mixed = net.node("Mul", net.node("Gelu", gate), curve)
    pooled = net.node("AveragePool", mixed, kernel_shape=[4, 4], strides=[4, 4])
    norm = net.node("LayerNormalization", pooled, net.floats([1.5, 0.5]), net.floats([0.1, -0.1]), axis=-1)
    flat = net.node("Reshape", norm, net.ints(1, 32))
    net.output(net.node("Softmax", net.node("MatMul", flat, net.weight(32, 5)), axis=-1))
    samples = [{"x": net.rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(8)]
    return net.model(), samples


def made_by(model: onnx.ModelProto, op: str) -> str:
    return next(str(node.output[0]) for node in model.graph.node if node.op_type == op)


@pytest.mark.parametrize("backend", ["qnn", "snpe", "qnn:activation=uint16", "qnn:per_channel=yes"])
@pytest.mark.parametrize("model", CNNS)
def test_every_operator_of_a_network_is_quantized_with_little_loss(model: str, backend: str, tmp_path: Path) -> None:
    result = quantized(model, backend, tmp_path)
    assert result.plan.left_float == {}
    assert min(result.report["sqnr_db"].values()) > 25


@pytest.mark.parametrize("backend", ["qnn", "snpe"])
def test_a_transformer_keeps_more_than_25_db(backend: str, tmp_path: Path) -> None:
    result = quantized("transformer", backend, tmp_path)
    assert min(result.report["sqnr_db"].values()) > 25


@pytest.mark.parametrize("backend", ["qnn", "qnn:activation=uint16"])
def test_every_node_of_the_file_stands_between_quantizers(backend: str, tmp_path: Path) -> None:
    model, samples = small_net()
    onnxq.quantize(model, backend=backend, data=samples, out=tmp_path, config={"effort": 0})
    graph = onnx.load(tmp_path / "model.onnx").graph
    constants = {item.name for item in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    floats = [node for node in graph.node if node.op_type not in ("QuantizeLinear", "DequantizeLinear")]
    assert {"Conv", "Gelu", "LayerNormalization", "MatMul", "AveragePool"} <= {node.op_type for node in floats}
    for node in floats:
        read = [name for name in node.input if name and name not in constants]
        assert {makers[name].op_type for name in read} == {"DequantizeLinear"}, node.name
        readers = [other for other in graph.node if node.output[0] in other.input]
        assert {other.op_type for other in readers} == {"QuantizeLinear"}, node.name
    assert {makers[output.name].op_type for output in graph.output} == {"DequantizeLinear"}
    assert {other.op_type for other in graph.node if "x" in other.input} == {"QuantizeLinear"}


@pytest.mark.parametrize(("activation", "bits"), [("uint8", 8), ("uint16", 16)])
def test_results_with_a_known_range_have_the_scales_of_the_htp(activation: str, bits: int, tmp_path: Path) -> None:
    model, samples = small_net()
    result = onnxq.quantize(
        model, backend=f"qnn:activation={activation}", data=samples, out=tmp_path, config={"effort": 0}
    )
    for op, scale, zero_point in (
        ("Sigmoid", 2.0**-bits, 0),
        ("Softmax", 2.0**-bits, 0),
        ("Tanh", 2.0 ** (1 - bits), 2 ** (bits - 1)),
    ):
        held = result.qparams[made_by(model, op)]
        assert (float(held.scale), int(held.zero_point)) == (scale, zero_point), op


def test_snpe_knows_the_ranges_of_sigmoid_and_softmax(tmp_path: Path) -> None:
    model, samples = small_net()
    result = onnxq.quantize(model, backend="snpe", data=samples, out=tmp_path, config={"effort": 0})
    for op in ("Sigmoid", "Softmax"):
        held = result.qparams[made_by(model, op)]
        assert (held.scale, held.zero_point) == (np.float32(1 / 255), 0)


def test_an_average_pool_keeps_the_scale_of_its_input(tmp_path: Path) -> None:
    model, samples = small_net()
    result = onnxq.quantize(model, backend="qnn", data=samples, out=tmp_path, config={"effort": 0})
    node = next(node for node in model.graph.node if node.op_type == "AveragePool")
    assert result.plan.leader(node.output[0]) == result.plan.leader(node.input[0])


@pytest.mark.parametrize("weight", ["int8", "uint8"])
def test_factors_of_a_normalization_are_unsigned_whatever_the_weights_are(weight: str, tmp_path: Path) -> None:
    model, samples = small_net()
    result = onnxq.quantize(model, backend=f"qnn:weight={weight}", data=samples, out=tmp_path, config={"effort": 0})
    norm = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
    matmul = next(node for node in model.graph.node if node.op_type == "MatMul")
    assert result.plan[norm.input[1]].spec.dtype == "uint8"
    assert result.plan[matmul.input[1]].spec.dtype == weight


def test_scales_per_channel_are_for_convolutions(tmp_path: Path) -> None:
    model, samples = small_net()
    result = onnxq.quantize(model, backend="qnn:per_channel=yes", data=samples, out=tmp_path, config={"effort": 0})
    weights = {node.op_type: node.input[1] for node in model.graph.node if node.op_type in ("Conv", "MatMul")}
    assert result.plan[weights["Conv"]].spec.granularity == PerChannel(0)
    assert result.qparams[weights["MatMul"]].scale.shape == ()


def test_sixteen_bits_need_opset_21_and_eight_do_not(tmp_path: Path) -> None:
    def opset(backend: str) -> int:
        quantized("residual", backend, tmp_path / backend.replace(":", "_"))
        found = onnx.load(tmp_path / backend.replace(":", "_") / "model.onnx").opset_import
        return next(int(entry.version) for entry in found if entry.domain == "")

    assert opset("qnn") == 17
    assert opset("qnn:activation=uint16") == 21


@pytest.mark.parametrize(
    ("backend", "tables"),
    [
        ("qnn", ENCODINGS),
        ("qnn:encodings=1.0.0", ("model_encodings_1.0.0.json",)),
        ("snpe", ("model_clip_ranges.json", *ENCODINGS)),
        ("snpe:encodings=0.6.1", ("model_clip_ranges.json", "model_encodings_0.6.1.json")),
    ],
)
def test_the_option_says_which_encodings_are_written(backend: str, tables: tuple[str, ...], tmp_path: Path) -> None:
    quantized("residual", backend, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("model_*.json")) == sorted(tables)
    assert (tmp_path / "model_deploy_model.onnx").exists()


@pytest.mark.parametrize("file", ["model_clip_ranges.json", *ENCODINGS])
def test_encodings_are_for_tensors_of_the_deploy_model(file: str, tmp_path: Path) -> None:
    result = quantized("depthwise", "snpe", tmp_path)
    graph = onnx.load(tmp_path / "model_deploy_model.onnx").graph
    names = {item.name for item in [*graph.input, *graph.initializer]} | {n for node in graph.node for n in node.output}
    found = read_encodings(tmp_path / file)
    assert set(found) <= names
    assert set(found) == {placement.tensor for placement in result.plan if placement.role != "bias"}


def test_snpe_is_unsigned_with_one_scale_for_everything(tmp_path: Path) -> None:
    result = quantized("depthwise", "snpe", tmp_path)
    specs = {placement.spec for placement in result.plan if placement.role != "bias"}
    assert {(spec.dtype, spec.symmetric, str(spec.granularity)) for spec in specs} == {("uint8", False, "per tensor")}


def test_unsigned_weights_per_channel_are_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="qnn:weight=int8,per_channel=yes"):
        get_backend("qnn:weight=uint8,per_channel=yes")
