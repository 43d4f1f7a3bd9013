"""Shapes of all tensors for one shape of the inputs, without a run."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.graph.fixed_shapes import shapes_for
from onnxq.runtime.session import float_session


def _model(declared: list[str | int | None]) -> onnx.ModelProto:
    """A convolution with stride, a pool and a matrix product, of any number and size of images."""
    random = np.random.default_rng(0)
    weights = {"w": random.normal(size=(8, 3, 3, 3)), "m": random.normal(size=(8, 5))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    stored = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, stored)
    graph.value_info.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, declared))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_shapes_are_those_of_a_run_and_the_graph_is_as_before() -> None:
    graph = Graph.from_model(_model(["batch", 8, "h", "w"]))
    before = {name: graph.shape(name) for name in ("x", "c", "y")}
    found = shapes_for(graph, {"x": (2, 3, 9, 12)})
    names = ["c", "p", "f", "y"]
    run = float_session(graph, names, threads=1).run(names, {"x": np.zeros((2, 3, 9, 12), np.float32)})
    assert found == {name: values.shape for name, values in zip(names, run, strict=True)}
    assert {name: graph.shape(name) for name in ("x", "c", "y")} == before


def test_sizes_that_no_input_settles_are_left_out() -> None:
    assert shapes_for(Graph.from_model(_model(["batch", 8, "h", "w"])), {}) == {}


def test_what_a_file_declares_of_another_size_is_left_aside() -> None:
    assert shapes_for(Graph.from_model(_model([1, 8, 99, 99])), {"x": (2, 3, 8, 8)})["c"] == (2, 8, 4, 4)
