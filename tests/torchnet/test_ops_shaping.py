"""Operators that move values (shaping, padding, indexing, ordering) against onnxruntime, in old and new opsets."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ModelError, UnsupportedError
from tests.torchnet.node_case import (
    NodeCase,
    assert_gradients,
    assert_same,
    net_of,
    onnxruntime_outputs,
    settings_of,
    torch_outputs,
)

RANDOM = np.random.default_rng(6)


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def scalar(number: int) -> np.ndarray:
    return np.array(number, np.int64)


X = values(2, 3, 4)
IMAGE = values(2, 8, 4, 6)
FAR = 2**31 - 1

SHAPING = [
    NodeCase("Reshape", 7, [X, ints(0, -1)]),
    NodeCase("Reshape", 14, [values(0, 3), ints(3, 0)], {"allowzero": 1}),
    NodeCase("Reshape", 13, [X, ints(4, 0, 2)]),
    NodeCase("Flatten", 7, [X], {"axis": 2}),
    NodeCase("Flatten", 9, [X], {"axis": 0}),
    NodeCase("Flatten", 13, [X], {"axis": -1}),
    NodeCase("Squeeze", 7, [values(1, 3, 1, 2)], {"axes": [0]}),
    NodeCase("Squeeze", 11, [values(1, 3, 1, 2)], {"axes": [-2, 0]}),
    NodeCase("Squeeze", 11, [values(1, 3, 1, 2)]),
    NodeCase("Squeeze", 13, [values(1, 3, 1, 2), ints(2)]),
    NodeCase("Squeeze", 13, [values(1, 3, 1, 2)]),
    NodeCase("Unsqueeze", 7, [X], {"axes": [0, 4]}),
    NodeCase("Unsqueeze", 11, [X], {"axes": [-1, 1]}),
    NodeCase("Unsqueeze", 13, [X, ints(3, 0)]),
    NodeCase("Transpose", 7, [X]),
    NodeCase("Transpose", 13, [X], {"perm": [1, 0, 2]}),
    NodeCase("Expand", 8, [values(3, 1), ints(2, 1, 4)]),
    NodeCase("Expand", 13, [values(2, 3, 1), ints(3, 5)]),
    NodeCase("Tile", 7, [X, ints(2, 1, 3)]),
    NodeCase("Shape", 7, [X]),
    NodeCase("Shape", 15, [X], {"start": -2, "end": 5}),
    NodeCase("Size", 13, [X]),
    NodeCase("DepthToSpace", 7, [IMAGE], {"blocksize": 2}),
    NodeCase("DepthToSpace", 11, [IMAGE], {"blocksize": 2, "mode": "CRD"}),
    NodeCase("SpaceToDepth", 7, [IMAGE], {"blocksize": 2}),
    NodeCase("Concat", 7, [X, values(2, 1, 4), X], {"axis": 1}),
    NodeCase("Concat", 11, [X, values(2, 3, 2)], {"axis": -1}),
    NodeCase("Split", 7, [X], {"axis": 2}, outputs=2),
    NodeCase("Split", 11, [X], {"axis": -1, "split": [1, 3]}, outputs=2),
    NodeCase("Split", 13, [X, ints(3, 1)], {"axis": 2}, outputs=2),
    NodeCase("Split", 13, [X], {"axis": 2}, outputs=4),
    NodeCase("Split", 18, [values(7, 2)], {"num_outputs": 3}, outputs=3),
    NodeCase("Pad", 7, [X], {"pads": [0, 1, 2, 1, 0, 1], "value": 1.5}),
    NodeCase("Pad", 7, [X], {"pads": [0, 1, 2, 0, 0, 1], "mode": "reflect"}),
    NodeCase("Pad", 7, [X], {"pads": [0, -1, 2, 0, 0, -1]}),
    NodeCase("Pad", 11, [X, ints(0, 0, 1, 0, 2, 3), np.array(-2.5, np.float32)]),
    NodeCase("Pad", 11, [X, ints(1, 0, 1, 0, 2, 3)], {"mode": "edge"}),
    NodeCase("Pad", 18, [X, ints(3, 1), np.array(2, np.float32), ints(-1)]),
    NodeCase("Pad", 19, [X, ints(1, 2, 5, 4), None, ints(0, 2)], {"mode": "wrap"}),
    NodeCase("Pad", 13, [X, ints(-1, 0, 0, 0, 0, 3)], {"mode": "reflect"}),
    NodeCase("CenterCropPad", 18, [values(5, 4, 3), ints(2, 7)], {"axes": [0, -1]}),
    NodeCase("ConstantOfShape", 9, [ints(2, 3)]),
    NodeCase("EyeLike", 9, [values(3, 5)], {"k": 1}),
    NodeCase("Range", 11, [np.array(1.5, np.float32), np.array(-3, np.float32), np.array(-0.75, np.float32)]),
    NodeCase("Range", 11, [scalar(10), scalar(3), scalar(-2)]),
]

INDEXING = [
    NodeCase("Slice", 7, [X], {"starts": [0, 1], "ends": [1, FAR], "axes": [0, 2]}),
    NodeCase("Slice", 9, [X], {"starts": [-2], "ends": [-1]}),
    NodeCase("Slice", 10, [X, ints(3), ints(0), ints(2), ints(-2)]),
    NodeCase("Slice", 11, [X, ints(-1, 0), ints(-FAR, 3), ints(-1, 1), ints(-1, 2)]),
    NodeCase("Slice", 13, [X, ints(1, 5), ints(2, 9), ints(1, 2)]),
    NodeCase("Slice", 13, [X, ints(0), ints(3), None, ints(2)]),
    NodeCase("Gather", 7, [X, ints(2, 0)], {"axis": 1}),
    NodeCase("Gather", 11, [X, scalar(-1)], {"axis": -1}),
    NodeCase("Gather", 13, [X, np.array([[0, -1], [1, 1]], np.int32)], {"axis": 1}),
    NodeCase("GatherElements", 11, [X, RANDOM.integers(-3, 3, (2, 2, 4))], {"axis": 1}),
    NodeCase("GatherND", 11, [X, np.array([[0, 1], [-1, 2]])]),
    NodeCase("GatherND", 12, [X, np.array([[[1, 3], [2, -1]], [[0, 0], [1, 2]]])], {"batch_dims": 1}),
    NodeCase("Scatter", 9, [X, np.array([[[1, 0]], [[2, 2]]]), values(2, 1, 2)], {"axis": 1}),
    NodeCase("ScatterElements", 13, [X, np.array([[[-1, 0]], [[2, 1]]]), values(2, 1, 2)], {"axis": 1}),
    NodeCase("ScatterElements", 16, [X, np.full((1, 1, 2), 2), values(1, 1, 2)], {"axis": 1, "reduction": "add"}),
    NodeCase("ScatterElements", 18, [X, np.full((1, 2, 2), 2), values(1, 2, 2)], {"axis": 1, "reduction": "mul"}),
    NodeCase("ScatterElements", 18, [X, np.full((1, 2, 2), 2), values(1, 2, 2)], {"axis": 1, "reduction": "max"}),
    NodeCase("ScatterND", 11, [X, np.array([[0, 2], [1, 0]]), values(2, 4)]),
    NodeCase("ScatterND", 16, [X, np.array([[0, 2], [0, 2]]), values(2, 4)], {"reduction": "add"}),
    NodeCase("ScatterND", 18, [X, np.array([[1], [1]]), values(2, 3, 4)], {"reduction": "min"}),
    NodeCase("ScatterND", 18, [X, np.array([[1, -1], [0, 0]]), values(2, 4)], {"reduction": "mul"}),
    NodeCase("Compress", 9, [X, np.array([False, True])], {"axis": 1}),
    NodeCase("Compress", 11, [X, np.array([True, False, True, True, False])]),
    NodeCase("OneHot", 11, [np.array([[1, -1], [9, 0]]), scalar(4), np.array([2, 5], np.float32)], {"axis": 1}),
    NodeCase("ReverseSequence", 10, [X, ints(2, 3)], {"time_axis": 1, "batch_axis": 0}),
    NodeCase("Trilu", 14, [X, scalar(-1)], {"upper": 0}),
    NodeCase("Trilu", 14, [X, scalar(1)]),
    NodeCase("TopK", 7, [X], {"k": 2, "axis": 1}, outputs=2),
    NodeCase("TopK", 10, [X, ints(3)], outputs=2),
    NodeCase("TopK", 11, [X, ints(2)], {"largest": 0, "axis": -2}, outputs=2),
]

SEARCHING = [
    NodeCase("NonZero", 9, [np.array([[0, 1, 0], [2, 0, 3]], np.float32)]),
    NodeCase("ArgMax", 7, [X], {"axis": 1}),
    NodeCase("ArgMin", 11, [X], {"axis": -1, "keepdims": 0}),
    NodeCase("ArgMax", 12, [np.array([[1, 3, 3], [2, 2, 1]], np.float32)], {"axis": 1, "select_last_index": 1}),
    NodeCase("Unique", 11, [np.array([2, 1, 1, 3, 2, 0], np.float32)], {"sorted": 0}, outputs=4),
    NodeCase("Unique", 11, [np.array([[2, 0], [1, 1], [2, 0]], np.float32)], {"axis": 0}, outputs=4),
    NodeCase("TopK", 11, [np.array([[1, 2, 2, 1, 2]], np.float32), ints(4)], outputs=2),
]


@pytest.mark.parametrize("case", SHAPING + INDEXING + SEARCHING, ids=str)
def test_moved_values_are_those_of_onnxruntime(case: NodeCase) -> None:
    wanted = onnxruntime_outputs(case)
    assert_same(torch_outputs(case, settings_of(case)), wanted)
    assert_same(torch_outputs(case), wanted)


HAS_GRADIENTS = [
    case
    for case in SHAPING + INDEXING
    if case.op not in ("Shape", "Size", "ConstantOfShape", "EyeLike", "Range", "OneHot")
    and case.inputs[0] is not None
    and case.inputs[0].size
    and not (case.op == "Pad" and len(case.inputs) > 2 and case.inputs[2] is not None)
]


@pytest.mark.parametrize("case", HAS_GRADIENTS, ids=str)
def test_gradients_pass_through_moved_values(case: NodeCase) -> None:
    assert_gradients(case)


WRITTEN_BEFORE_OPSET_7 = [
    (NodeCase("Reshape", 4, [X], {"shape": [0, 12]}), X.reshape(2, 12)),
    (NodeCase("Concat", 3, [X, X]), np.concatenate([X, X], 1)),
    (NodeCase("Tile", 5, [X, scalar(3), scalar(1)]), np.tile(X, (1, 3, 1))),
    (NodeCase("Split", 1, [X, ints(3, 1)], {"axis": 2}, outputs=2), np.split(X, [3], 2)),
    (NodeCase("Split", 2, [X], {"axis": 1}, outputs=3), np.split(X, 3, 1)),
    (NodeCase("Pad", 1, [X], {"paddings": [0, 1, 0, 0, 0, 2], "mode": "edge"}), None),
    (NodeCase("Slice", 1, [X], {"starts": [1], "ends": [FAR]}), X[1:]),
    (NodeCase("TopK", 1, [X], {"k": 1}, outputs=2), None),
]


@pytest.mark.parametrize(("case", "wanted"), WRITTEN_BEFORE_OPSET_7, ids=lambda item: str(item)[:40])
def test_first_definitions_are_understood(case: NodeCase, wanted: np.ndarray | list[np.ndarray] | None) -> None:
    if case.op == "Pad":
        wanted = np.pad(X, ((0, 0), (1, 0), (0, 2)), mode="edge")
    if case.op == "TopK":
        wanted = [X.max(-1, keepdims=True), X.argmax(-1)[..., None]]
    assert wanted is not None
    assert_same(torch_outputs(case), wanted if isinstance(wanted, list) else [wanted])


def test_wrapped_reflections_go_back_and_forth_as_numpy_does() -> None:
    row = np.arange(3, dtype=np.float32)
    case = NodeCase("Pad", 13, [row, ints(7, 6)], {"mode": "reflect"})
    assert_same(torch_outputs(case), [np.pad(row, (7, 6), mode="reflect")])


def test_one_hot_before_opset_11_knows_no_negative_index() -> None:
    case = NodeCase("OneHot", 9, [np.array([-1, 1]), scalar(3), np.array([0, 1], np.float32)])
    assert_same(torch_outputs(case), [np.array([[0, 0, 0], [0, 1, 0]], np.float32)])


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64, np.float16, np.bool_])
def test_every_element_type_is_moved(dtype: type) -> None:
    data = np.array([[1, 0, 3], [0, 5, 6]]).astype(dtype)
    gathered = NodeCase("GatherElements", 13, [data, np.array([[1, 0, 1]])])
    assert_same(torch_outputs(gathered), [np.take_along_axis(data, np.array([[1, 0, 1]]), 0)])
    turned = NodeCase("Slice", 13, [data, ints(-1), ints(-FAR), ints(1), ints(-1)])
    assert_same(torch_outputs(turned), [data[:, ::-1]])


def test_strings_are_moved() -> None:
    words = np.array([["a", "b"], ["", "c"]], dtype=object)
    found = torch_outputs(NodeCase("Transpose", 13, [words], {"perm": [1, 0]}))
    assert found[0].tolist() == [["a", ""], ["b", "c"]]


def test_squeeze_refuses_an_axis_with_several_values() -> None:
    with pytest.raises(ModelError, match="its size must be 1"):
        torch_outputs(NodeCase("Squeeze", 13, [X, ints(1)]))


def test_an_unknown_padding_is_refused_when_the_net_is_made() -> None:
    with pytest.raises(UnsupportedError, match="mode 'mirror' is not one of constant, reflect, edge, wrap"):
        net_of(NodeCase("Pad", 13, [X, ints(0, 0, 0, 0, 0, 1)], {"mode": "mirror"}))
