"""Weights that no layer can read: passes leave them to onnxruntime, which says what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.passes import run_passes

STATISTICS = {name: np.ones(4, np.float32) for name in ("gamma", "beta", "mean", "var")}


def between_layers(weight: np.ndarray, op: str, **attributes: int) -> Graph:
    """layer -> BatchNormalization -> layer, and the weight in a Mul as well."""
    nodes = [
        helper.make_node(op, ["x", "w"], ["a"], name="before", **attributes),
        helper.make_node("BatchNormalization", ["a", *STATISTICS], ["b"], name="norm"),
        helper.make_node(op, ["b", "w"], ["c"], name="after", **attributes),
        helper.make_node("Mul", ["c", "w"], ["y"], name="mul"),
    ]
    shape = [1, 4] if op in ("Gemm", "MatMul") else [1, 4, 5, 5]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in {"w": weight, **STATISTICS}.items()],
    )
    return Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


@pytest.mark.parametrize(
    ("op", "shape", "group"),
    [
        *((op, shape, None) for op in ("Conv", "ConvTranspose", "Gemm", "MatMul") for shape in ((), (4,))),
        *((op, (4, 4, 1, 1), group) for op in ("Conv", "ConvTranspose") for group in (0, -1, 3)),
    ],
)
@pytest.mark.parametrize("name", ["fold_batchnorm", "split_shared_weights", "fuse_conv_scale"])
def test_passes_decline_weights_without_channels(op: str, shape: tuple[int, ...], group: int | None, name: str) -> None:
    graph = between_layers(np.ones(shape, np.float32), op, **({} if group is None else {"group": group}))
    run_passes(graph, [name])
    assert [node.op for node in graph.nodes()] == [op, "BatchNormalization", op, "Mul"]


@pytest.mark.parametrize("shape", [(), (4,), (4, 4, 1)])
def test_a_gemm_with_a_weight_that_is_no_matrix_keeps_its_bias(shape: tuple[int, ...]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "c"], ["y"], name="gemm")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones(dims, np.float32), name) for name, dims in (("w", shape), ("c", (1, 1)))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    report = run_passes(Graph.from_model(model), ["canonicalize_gemm"])[0]
    assert "the number of output channels is not known" in report.declined[0]
