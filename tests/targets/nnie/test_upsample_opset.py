"""Opset 9: operators with lists of nothing, and with one number where a list is expected, are written as attributes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.targets.nnie.upsample_opset import lower_to_upsample_opset

CASES = {
    "a Slice of no axes": ("Slice", {"starts": np.int64([]), "ends": np.int64([]), "axes": np.int64([])}),
    "an Unsqueeze of one number": ("Unsqueeze", {"axes": np.int64(1)}),
    "a Clip with bounds of one value each": ("Clip", {"min": np.float32([-0.5]), "max": np.float32([0.5])}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("infer", [True, False], ids=["known shapes", "unknown shapes"])
def test_constants_become_attributes(case: str, infer: bool) -> None:
    op, constants = CASES[case]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node(op, ["r", *constants], ["y"], name="it")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    feed = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(1, 3, 2)}
    before = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)[0]
    lowered = Graph.from_model(model)
    if infer:
        lowered.infer_shapes()
    assert lower_to_upsample_opset(lowered) is None
    after = onnxruntime.InferenceSession(lowered.to_model().SerializeToString()).run(None, feed)[0]
    np.testing.assert_array_equal(before, after)


def test_a_softmax_of_a_single_number_is_left_as_it_is() -> None:
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"], name="soft")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    assert "not along the last axis" in (lower_to_upsample_opset(Graph.from_model(model)) or "")
