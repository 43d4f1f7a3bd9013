"""Small graphs and feeds for the tests of taps and of collecting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.observers import RangeStatistic

FLOAT = TensorProto.FLOAT


def info(name: str, shape: list[int | str | None] | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name: str, values: object, dtype: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def build(nodes, inputs, outputs, initializers=(), opset: int = 17) -> Graph:  # type: ignore[no-untyped-def]
    graph = helper.make_graph(nodes, "test", inputs, outputs, list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(model)
    return Graph.from_model(model)


def chain(length: int = 3, shape: tuple[int | str, ...] = ("N", 4)) -> Graph:
    """y = x * 2 * 2 * ..., with intermediate tensors t0, t1, ..."""
    nodes = [
        helper.make_node("Mul", ["x" if i == 0 else f"t{i - 1}", "two"], [f"t{i}"], name=f"mul{i}")
        for i in range(length)
    ]
    nodes.append(helper.make_node("Identity", [f"t{length - 1}"], ["y"], name="last"))
    return build(nodes, [info("x", list(shape))], [info("y", list(shape))], [constant("two", 2.0)])


def feeds(count: int, rows: int = 1) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(0)
    return [{"x": generator.normal(size=(rows, 4)).astype(np.float32)} for _ in range(count)]


def ranges(names: Iterable[str]) -> dict[str, list[RangeStatistic]]:
    return {name: [RangeStatistic()] for name in names}


def bits(statistics: Mapping[str, Sequence[RangeStatistic]]) -> dict[str, list[dict[str, bytes]]]:
    return {
        name: [{key: array.tobytes() for key, array in one.to_arrays().items()} for one in kinds]
        for name, kinds in statistics.items()
    }


def convolutions(batch: str | int = "N") -> Graph:
    """Three convolutions with Relu; the activations are large enough to be reduced inside the graph."""
    random = np.random.default_rng(3)
    nodes, constants, before = [], [], "x"
    for i, (channels, out) in enumerate([(3, 16), (16, 16), (16, 8)]):
        weight = random.normal(0, 0.2, (out, channels, 3, 3))
        constants.append(constant(f"w{i}", weight))
        nodes.append(helper.make_node("Conv", [before, f"w{i}"], [f"c{i}"], name=f"conv{i}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"], name=f"relu{i}"))
        before = f"r{i}"
    nodes.append(helper.make_node("ReduceMean", [before], ["pooled"], name="pool", axes=[2, 3], keepdims=0))
    nodes.append(helper.make_node("MatMul", ["pooled", "m"], ["y"], name="last"))
    constants.append(constant("m", random.normal(0, 1, (8, 10))))
    graph = build(nodes, [info("x", [batch, 3, 48, 48])], [info("y", [batch, 10])], constants)
    graph.infer_shapes()
    return graph


ACTIVATIONS = ["x", "c0", "r0", "c1", "r1", "c2", "r2", "pooled", "y"]


def images(count: int) -> np.ndarray:
    random = np.random.default_rng(5)
    return (random.standard_t(5, (count, 3, 48, 48)) * random.uniform(0.2, 3, (count, 1, 1, 1))).astype(np.float32)


def in_batches(data: np.ndarray, size: int) -> list[dict[str, np.ndarray]]:
    return [{"x": data[i : i + size]} for i in range(0, len(data), size)]
