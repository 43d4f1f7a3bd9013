"""If, Loop, Scan and SequenceMap against onnxruntime, and the gradients through their bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import DataError
from tests.torchnet.one_node import in_onnxruntime, in_torch, net_of

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RANDOM = np.random.default_rng(8)


def info(name: str, kind: int, shape: Sequence[Any] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def assert_equal(model: onnx.ModelProto, inputs: list[np.ndarray]) -> None:
    """Torch and onnxruntime agree; the tolerance is for sums taken in another order."""
    found = in_torch(model, inputs)
    for value, wanted in zip(found, in_onnxruntime(model, inputs), strict=True):
        assert value.dtype == wanted.dtype
        assert value.shape == wanted.shape
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)


# ---- Loop ------------------------------------------------------------------------------------------------------------


def powers(opset: int, *, has_condition: bool = True) -> onnx.ModelProto:
    """Multiplies its state by a matrix from outside until its sum is above 100; the sums are an output too."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["next"]),
            helper.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "limit"], ["again"]),
            helper.make_node("Identity", ["sum"], ["row"]),
        ],
        "body",
        [info("trip", INT64, []), info("go", BOOL, []), info("state", FLOAT, [1, 2])],
        [info("again", BOOL, []), info("next", FLOAT, [1, 2]), info("row", FLOAT, [])],
    )
    loop = helper.make_node("Loop", ["i0", "i1" if has_condition else "", "i2"], ["o0", "o1"], body=body)
    return model_of(
        helper.make_graph(
            [loop],
            "powers",
            [info("i0", INT64, []), *([info("i1", BOOL, [])] if has_condition else []), info("i2", FLOAT, [1, 2])],
            [info("o0", FLOAT, [1, 2]), info("o1", FLOAT, [None])],
            [
                numpy_helper.from_array(np.array([[1, 2], [3, 1]], np.float32), "w"),
                numpy_helper.from_array(np.array(100, np.float32), "limit"),
            ],
        ),
        opset,
    )


@pytest.mark.parametrize("opset", [8, 11, 13, 17])
@pytest.mark.parametrize(("trips", "go"), [(2, True), (50, True), (0, True), (5, False)])
def test_loops_end_where_those_of_onnxruntime_end(opset: int, trips: int, go: bool) -> None:
    inputs = [np.array(trips), np.array(go), np.array([[1, 1]], np.float32)]
    assert_equal(powers(opset), inputs)


def test_a_loop_without_condition_gets_true() -> None:
    inputs = [np.array(3), None, np.array([[1, 1]], np.float32)]
    found = in_torch(powers(13, has_condition=False), inputs)
    assert [value.tolist() for value in found] == [[[46.0, 37.0]], [7.0, 24.0, 83.0]]


@pytest.mark.parametrize("shape", [[], [1]])
def test_bodies_get_the_number_of_the_iteration_in_the_shape_that_they_declare(shape: list[int]) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Identity", ["trip"], ["seen"])],
        "body",
        [info("trip", INT64, shape), info("go", BOOL, shape)],
        [info("again", BOOL, shape), info("seen", INT64, shape)],
    )
    loop = helper.make_node("Loop", ["i0", "i1"], ["o0"], body=body)
    declared = [info("i0", INT64, shape), info("i1", BOOL, shape)]
    graph = helper.make_graph([loop], "count", declared, [info("o0", INT64, [None, *shape])])
    assert_equal(model_of(graph, 13), [np.full(shape, 3), np.full(shape, True)])


def test_the_weights_of_a_loop_get_the_gradients_of_all_its_iterations() -> None:
    net = net_of(powers(13))
    state = torch.ones(1, 2)
    net(torch.tensor(3), torch.tensor(True), state)[0].sum().backward()
    w = net.get_parameter("w")
    again = w.detach().clone().requires_grad_()
    (state @ again @ again @ again).sum().backward()
    assert again.grad is not None
    torch.testing.assert_close(w.grad, again.grad)


# ---- If --------------------------------------------------------------------------------------------------------------


def nested_if() -> onnx.ModelProto:
    """|x| > 1 in the sum: x * w, or what a second If says."""

    def leaf(op: str, output: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(op, ["i1", "w"], [output])], output, [], [info(output, FLOAT, [3])])

    inner = helper.make_node("If", ["i2"], ["inner"], then_branch=leaf("Add", "added"), else_branch=leaf("Sub", "less"))
    outer = helper.make_graph([inner], "outer", [], [info("inner", FLOAT, [3])])
    node = helper.make_node("If", ["i0"], ["o0"], then_branch=leaf("Mul", "product"), else_branch=outer)
    return model_of(
        helper.make_graph(
            [node],
            "choice",
            [info("i0", BOOL, []), info("i1", FLOAT, [3]), info("i2", BOOL, [])],
            [info("o0", FLOAT, [3])],
            [numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")],
        ),
        13,
    )


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_branches_in_branches_read_values_from_outside(first: bool, second: bool) -> None:
    assert_equal(nested_if(), [np.array(first), values(3), np.array(second)])


# ---- Scan ------------------------------------------------------------------------------------------------------------


def scan_body() -> onnx.GraphProto:
    """state + a * b -> state; the state and a - b are what it makes of each row."""
    return helper.make_graph(
        [
            helper.make_node("Mul", ["a", "b"], ["ab"]),
            helper.make_node("Add", ["state", "ab"], ["next"]),
            helper.make_node("Identity", ["next"], ["seen"]),
            helper.make_node("Sub", ["a", "b"], ["difference"]),
        ],
        "body",
        [info("state", FLOAT, [3]), info("a", FLOAT, [3]), info("b", FLOAT, [3])],
        [info("next", FLOAT, [3]), info("seen", FLOAT, [3]), info("difference", FLOAT, [3])],
    )


@pytest.mark.parametrize(
    ("opset", "attributes"),
    [
        (9, {}),
        (9, {"scan_input_directions": [1, 0], "scan_output_directions": [0, 1]}),
        (9, {"scan_input_axes": [0, 1], "scan_output_axes": [1, 0]}),
        (11, {"scan_input_axes": [-2, -1], "scan_output_axes": [-1, -2], "scan_output_directions": [1, 1]}),
        (16, {"scan_input_directions": [0, 1], "scan_output_axes": [0, -1]}),
    ],
)
def test_scans_go_along_all_axes_in_both_directions(opset: int, attributes: dict[str, list[int]]) -> None:
    transposed = attributes.get("scan_input_axes", [0, 0])[1] != 0
    second = values(3, 4) if transposed else values(4, 3)
    inputs = [values(3), values(4, 3), second]
    node = helper.make_node(
        "Scan", ["i0", "i1", "i2"], ["o0", "o1", "o2"], body=scan_body(), num_scan_inputs=2, **attributes
    )
    graph = helper.make_graph(
        [node],
        "scan",
        [info(f"i{number}", FLOAT, [None] * value.ndim) for number, value in enumerate(inputs)],
        [info("o0", FLOAT, [3]), info("o1", FLOAT, [None, None]), info("o2", FLOAT, [None, None])],
    )
    assert_equal(model_of(graph, opset), inputs)


@pytest.mark.parametrize("directions", [[0, 0], [1, 0]])
@pytest.mark.parametrize("lengths", [None, [2, 4]])
def test_scans_of_opset_8_go_over_batches(lengths: list[int] | None, directions: list[int]) -> None:
    inputs = [np.array(lengths or [], np.int64), values(2, 3), values(2, 4, 3), values(2, 4, 3)]
    names = ["i0" if lengths else "", "i1", "i2", "i3"]
    node = helper.make_node(
        "Scan", names, ["o0", "o1", "o2"], body=scan_body(), num_scan_inputs=2, directions=directions
    )
    declared = [info("i0", INT64, [2])] if lengths else []
    declared += [info(f"i{port}", FLOAT, list(inputs[port].shape)) for port in (1, 2, 3)]
    outputs = [info("o0", FLOAT, [2, 3]), info("o1", FLOAT, [2, 4, 3]), info("o2", FLOAT, [2, 4, 3])]
    assert_equal(model_of(helper.make_graph([node], "scan", declared, outputs), 8), inputs)


# ---- sequences -------------------------------------------------------------------------------------------------------


def test_a_split_sequence_can_be_changed_and_joined_again() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["i0", "i1"], ["parts"], axis=1),
        helper.make_node("SequenceErase", ["parts", "first"], ["fewer"]),
        helper.make_node("SequenceAt", ["parts", "first"], ["part"]),
        helper.make_node("SequenceInsert", ["fewer", "part"], ["turned"]),
        helper.make_node("ConcatFromSequence", ["turned"], ["o0"], axis=-1),
        helper.make_node("SequenceLength", ["turned"], ["o1"]),
    ]
    graph = helper.make_graph(
        nodes,
        "parts",
        [info("i0", FLOAT, [2, 5]), info("i1", INT64, [])],
        [info("o0", FLOAT, [None, None]), info("o1", INT64, [])],
        [numpy_helper.from_array(np.array(0), "first")],
    )
    assert_equal(model_of(graph, 13), [values(2, 5), np.array(2)])


def test_a_position_outside_of_a_sequence_is_named() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("SequenceConstruct", ["i0"], ["one"]),
            helper.make_node("SequenceAt", ["one", "i1"], ["o0"], name="reader"),
        ],
        "one",
        [info("i0", FLOAT, [2]), info("i1", INT64, [])],
        [info("o0", FLOAT, None)],
    )
    with pytest.raises(DataError, match=r"'reader'.*position 3 is outside \[-1, 0\]"):
        in_torch(model_of(graph, 13), [values(2), np.array(3)])


def test_sequence_map_runs_its_body_for_each_item() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["item", "more"], ["sum"])],
        "body",
        [info("item", FLOAT, [None]), info("more", FLOAT, [None])],
        [info("sum", FLOAT, [None])],
    )
    nodes = [
        helper.make_node("SequenceConstruct", ["i0", "i1"], ["items"]),
        helper.make_node("SequenceMap", ["items", "i0"], ["sums"], body=body),
        helper.make_node("ConcatFromSequence", ["sums"], ["o0"], axis=0),
    ]
    graph = helper.make_graph(
        nodes, "mapped", [info("i0", FLOAT, [3]), info("i1", FLOAT, [3])], [info("o0", FLOAT, [None])]
    )
    assert_equal(model_of(graph, 17), [values(3), values(3)])
