"""The float model for tpu-mlir says what tpu-mlir would otherwise assume wrongly."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.targets.sophgo.deploy import write_out_defaults


def test_strides_axes_and_kernels_are_written_out_with_the_meaning_that_onnx_gives_them() -> None:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["pool"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("AveragePool", ["pool"], ["mean"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["mean", "w"], ["conv"]),
        helper.make_node("Split", ["conv"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "pools",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((2, 2, 1, 3), np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    before = onnx.shape_inference.infer_shapes(model, data_prop=True)
    held = Graph.from_model(model)
    notes = write_out_defaults(held)
    pool, mean, conv, split = held.nodes()
    assert pool.attrs["strides"] == [1, 1]
    assert mean.attrs["strides"] == [2, 2]
    assert conv.attrs["kernel_shape"] == [1, 3]
    assert split.attrs["axis"] == 0
    assert len(notes) == 1
    assert "strides" in notes[0]
    after = onnx.shape_inference.infer_shapes(held.to_model(), data_prop=True)
    shapes = [
        {info.name: [d.dim_value for d in info.type.tensor_type.shape.dim] for info in made.graph.value_info}
        for made in (before, after)
    ]
    assert shapes[0] == shapes[1]
