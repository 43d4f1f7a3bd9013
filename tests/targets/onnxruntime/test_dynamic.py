"""onnxruntime with activations=dynamic: ranges of activations are found in each run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.emit.simulate import simulate
from onnxq.errors import ConfigError
from onnxq.runtime.session import make_session
from onnxq.session.prepare import prepare
from tests.zoo_graphs.net import Net

DYNAMIC = "onnxruntime:activations=dynamic"
QUICK = {"effort": 0, "report": "no"}


def recurrent_net(direction: str = "forward", steps: int = 5) -> onnx.ModelProto:
    net = Net(f"lstm {direction}")
    ways = 2 if direction == "bidirectional" else 1
    x = net.input("x", [steps, "batch", 12])
    weight = net.floats(net.rng.normal(0, 0.3, (ways, 32, 12)), "w")
    state = net.floats(net.rng.normal(0, 0.3, (ways, 32, 8)), "r")
    bias = net.floats(net.rng.normal(0, 0.1, (ways, 64)), "b")
    attrs = {"hidden_size": 8, "direction": direction}
    net.output(net.node("LSTM", x, weight, state, bias, name="lstm", output="y", **attrs), None)
    return net.model()


def layers_net() -> onnx.ModelProto:
    """A convolution, a small one, one in groups, a Gemm with a turned weight, a MatMul and one of computed matrices."""
    net = Net("layers")
    x = net.node("Conv", net.input("x", ["batch", 3, 8, 8]), net.weight(64, 3, 3, 3), name="small")
    x = net.conv(x, 64, 256)
    x = net.node("Conv", x, net.weight(256, 1, 3, 3), group=256, pads=[1, 1, 1, 1], name="depthwise")
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    x = net.node("Gemm", x, net.weight(256, 256), net.bias(256), transB=1, name="gemm")
    y = net.node("MatMul", net.node("Unsqueeze", x, net.ints(0)), net.weight(256, 16), name="matmul")
    net.output(net.node("MatMul", y, net.node("Transpose", y, perm=[0, 2, 1]), name="both", output="y"), None)
    return net.model()


def feeds(model: onnx.ModelProto, count: int = 4) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    dims = [dim.dim_value or 2 for dim in model.graph.input[0].type.tensor_type.shape.dim]
    return [{"x": rng.normal(0, 1 + number, dims).astype(np.float32)} for number in range(count)]


def run(model: onnx.ModelProto | Path, feed: dict[str, np.ndarray]) -> np.ndarray:
    data = str(model) if isinstance(model, Path) else model.SerializeToString()
    return np.asarray(make_session(data, threads=1).run(None, feed)[0])


def test_layers_compute_in_integers_whose_ranges_are_found_in_each_run(tmp_path: Path) -> None:
    model = layers_net()
    result = onnxq.quantize(model, backend=DYNAMIC, out=tmp_path / "out", config=QUICK)  # without a sample
    written = onnx.load(tmp_path / "out" / "model.onnx")
    ops = [node.op_type for node in written.graph.node]
    assert ops.count("ConvInteger") == 1
    assert ops.count("MatMulInteger") == 2
    assert ops.count("Conv") == 2
    assert ops.count("MatMul") == 1
    assert "QuantizeLinear" not in ops
    assert "groups" in str(result.plan.left_float["depthwise"])
    assert "small" in str(result.plan.left_float["small"])
    assert "computed at run time" in str(result.plan.left_float["both"])
    for feed in feeds(model):
        expected, found = run(model, feed), run(tmp_path / "out" / "model.onnx", feed)
        error = float(np.square(expected - found).sum() / np.square(expected).sum())
        assert error < 0.01  # 20 dB in every sample, however large its values are


def test_layers_that_read_the_same_tensor_share_its_quantizer(tmp_path: Path) -> None:
    net = Net("shared")
    x = net.input("x", [4, 16])
    parts = [net.node("MatMul", x, net.weight(16, 16)) for _ in range(3)]
    net.output(net.node("Sum", *parts, output="y"), None)
    onnxq.quantize(net.model(), backend=DYNAMIC, out=tmp_path / "out", config=QUICK)
    ops = [node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node]
    assert ops.count("DynamicQuantizeLinear") == 1
    assert ops.count("MatMulInteger") == 3


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_an_lstm_keeps_its_name_and_rounds_its_state_too(direction: str, tmp_path: Path) -> None:
    model = recurrent_net(direction)
    result = onnxq.quantize(model, backend=DYNAMIC, data=feeds(model), out=tmp_path / "out", config=QUICK)
    node = next(node for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node if node.name == "lstm")
    assert (node.op_type, node.domain) == ("DynamicQuantizeLSTM", "com.microsoft")
    assert result.report["sqnr_db"]["y"] > 25
    assert result.report["kernels"]["integer"] == {"DynamicQuantizeLSTM": 1}


@pytest.mark.parametrize("model", [layers_net(), recurrent_net("bidirectional")], ids=["layers", "lstm"])
def test_the_simulated_model_computes_what_the_file_computes(model: onnx.ModelProto, tmp_path: Path) -> None:
    result = onnxq.quantize(model, backend=DYNAMIC, data=feeds(model), out=tmp_path / "out", config=QUICK)
    prepared = prepare(model, DYNAMIC)
    graph, _ = simulate(prepared.graph, result.plan, result.qparams, prepared.backend)
    for feed in feeds(model):
        found, simulated = run(tmp_path / "out" / "model.onnx", feed), run(graph.to_model(), feed)
        # Integers are equal; sums of floats have another order.
        np.testing.assert_allclose(found, simulated, rtol=0, atol=2e-5 * np.abs(simulated).max())


def test_weights_in_one_scale_for_each_gate_row(tmp_path: Path) -> None:
    result = onnxq.quantize(recurrent_net(), backend=DYNAMIC, out=tmp_path / "out", config=QUICK)
    assert [placement.spec.granularity.axis for placement in result.plan] == [1, 1]
    assert {placement.tensor for placement in result.plan} == {"w", "r"}


def test_a_vector_stays_float_with_its_reason(tmp_path: Path) -> None:
    net = Net("vector")
    x = net.node("MatMul", net.input("x", [3, 16]), net.weight(16, 16))
    net.output(net.node("MatMul", x, net.floats(np.ones(16)), name="vector", output="y"), None)
    result = onnxq.quantize(net.model(), backend=DYNAMIC, out=tmp_path / "out", config=QUICK)
    assert "vector" in str(result.plan.left_float["vector"])


def test_a_row_with_large_values_costs_the_others_nothing(tmp_path: Path) -> None:
    """Two layers read rows of unlike size, which they divide once; a layer behind a norm needs no scales of rows."""
    net = Net("rows")
    x = net.input("x", [1, 8, 32])
    parts = [net.node("MatMul", x, net.weight(32, 32, fan_in=32)) for _ in range(2)]
    total = net.node("Sum", *parts)
    normed = net.node("LayerNormalization", total, net.floats(np.ones(32)), net.floats(np.zeros(32)))
    moved = net.node("Reshape", normed, net.ints(8, 32))
    net.output(net.node("MatMul", moved, net.weight(32, 32, fan_in=32), output="y"), None)
    model = net.model()
    feed = {"x": net.normal(1, 8, 32)}
    feed["x"][0, 3] *= 1000
    feed["x"][0, 5] = 0
    onnxq.quantize(model, backend=DYNAMIC, out=tmp_path / "out", config=QUICK)
    ops = [node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node]
    assert ops.count("MatMulInteger") == 3
    assert ops.count("ReduceMax") == 1
    expected, found = run(model, feed), run(tmp_path / "out" / "model.onnx", feed)
    quiet = [0, 1, 2, 4, 6, 7]
    error = float(np.square(expected - found)[quiet].sum() / np.square(expected)[quiet].sum())
    assert error < 10**-3.5


def test_a_single_row_keeps_one_scale(tmp_path: Path) -> None:
    net = Net("one row")
    x = net.node("MatMul", net.input("x", [1, 512]), net.weight(512, 256))
    net.output(net.node("MatMul", x, net.weight(256, 32), name="small", output="y"), None)
    result = onnxq.quantize(net.model(), backend=DYNAMIC, out=tmp_path / "out", config=QUICK)
    ops = [node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node]
    assert "ReduceMax" not in ops
    assert ops.count("MatMulInteger") == 1
    assert "small" in str(result.plan.left_float["small"])


def test_small_layers_are_quantized_for_the_size_of_the_file(tmp_path: Path) -> None:
    model, backend = layers_net(), f"{DYNAMIC},small=integers"
    result = onnxq.quantize(model, backend=backend, out=tmp_path / "out", config=QUICK)
    assert "small" in result.plan.quantized
    with pytest.raises(ConfigError, match="activations=dynamic"):
        onnxq.quantize(model, backend="onnxruntime:small=integers", out=tmp_path / "static", config=QUICK)
