"""A small model whose names are markup, escapes of a terminal, and long."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HOSTILE = "<script>alert(1)</script>&amp;[red]\x1b[31m\u202e'\"" + "x" * 300


def hostile_model() -> onnx.ModelProto:
    """Two matrix products with a Tanh between them, every name hostile."""
    names = [f"{HOSTILE}{number}" for number in range(8)]
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(size=(8, 8)).astype(np.float32), names[0]),
        numpy_helper.from_array(rng.normal(size=(8, 8)).astype(np.float32), names[1]),
    ]
    nodes = [
        helper.make_node("MatMul", [names[2], names[0]], [names[3]], name=names[3]),
        helper.make_node("Tanh", [names[3]], [names[4]], name=names[4]),
        helper.make_node("MatMul", [names[4], names[1]], [names[5]], name=names[5]),
    ]
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in (names[2], names[5])]
    graph = helper.make_graph(nodes, "hostile", shapes[:1], shapes[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def hostile_samples(count: int = 8) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, 8)).astype(np.float32)
