"""Small graphs and feeds for the tests of taps and of collecting."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph

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
