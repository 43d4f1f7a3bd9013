"""Single layers with a constant weight, quantized without data, and what numpy makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from onnxq.calibrate import calibrate
from onnxq.emit import emit
from onnxq.numerics import fake_quantize
from onnxq.session.prepare import make_plan, prepare
from tests.zoo_graphs.net import Net

RNG = np.random.default_rng(5)
OUTPUTS = 24


@dataclass(frozen=True)
class Layer:
    """A model of one layer with the weight 'w', a feed for it, and its result as a function of the weight."""

    model: onnx.ModelProto
    feed: dict[str, np.ndarray]
    result: Callable[[np.ndarray], np.ndarray]


def _values(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def matmul(inputs: int) -> Layer:
    net = Net("matmul")
    x = net.input("x", ["batch", "tokens", inputs])
    net.output(net.node("MatMul", x, net.weight(inputs, OUTPUTS, name="w")), ["batch", "tokens", OUTPUTS])
    feed = {"x": _values(2, 3, inputs)}
    return Layer(net.model(), feed, lambda w: feed["x"] @ w)


def gemm(inputs: int) -> Layer:
    net = Net("gemm")
    net.output(
        net.node("Gemm", net.input("x", ["n", inputs]), net.weight(inputs, OUTPUTS, name="w"), net.bias(OUTPUTS))
    )
    model, feed = net.model(), {"x": _values(5, inputs)}
    return Layer(model, feed, lambda w: feed["x"] @ w + _held(model, "bias"))


def gemm_transposed(inputs: int) -> Layer:
    net = Net("gemm_transposed")
    weight = net.weight(OUTPUTS, inputs, name="w")
    net.output(net.node("Gemm", net.input("x", ["n", inputs]), weight, net.bias(OUTPUTS), transB=1))
    model, feed = net.model(), {"x": _values(5, inputs)}
    return Layer(model, feed, lambda w: feed["x"] @ w.T + _held(model, "bias"))


def gather(inputs: int) -> Layer:
    net = Net("gather")
    table = net.weight(OUTPUTS, inputs, name="w")
    net.output(net.node("Gather", table, net.input("ids", ["n", "tokens"], np.int64)))
    feed = {"ids": np.array([[0, 3, OUTPUTS - 1], [7, 7, -1]])}
    return Layer(net.model(), feed, lambda w: w[feed["ids"]])


def conv(inputs: int) -> Layer:
    net = Net("conv")
    weight = net.weight(OUTPUTS, inputs, 1, 1, name="w")
    net.output(net.node("Conv", net.input("x", ["n", inputs, 4, 4]), weight))
    feed = {"x": _values(2, inputs, 4, 4)}
    return Layer(net.model(), feed, lambda w: np.einsum("nihw,oi->nohw", feed["x"], w[:, :, 0, 0]))


LAYERS = {"MatMul": matmul, "Gemm": gemm, "Gemm transB": gemm_transposed, "Gather": gather, "Conv": conv}


def _held(model: onnx.ModelProto, start: str) -> np.ndarray:
    return next(onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name.startswith(start))


def quantized(model: onnx.ModelProto, backend: str, folder: Path) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The file that a backend writes, and each weight as the numbers in it mean it, according to numerics."""
    prepared = prepare(model, backend)
    plan = make_plan(prepared)
    parameters, plan, _ = calibrate(prepared.graph, plan)
    files = emit(prepared.graph, plan, parameters, prepared.backend, folder, "model").files
    meant = {p.tensor: fake_quantize(prepared.graph.values(p.tensor), parameters[p.tensor]) for p in plan}
    return onnx.load(files[0]), meant


def run(model: onnx.ModelProto, feed: dict[str, np.ndarray], *, optimized: bool = False) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options).run(None, feed)


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]
