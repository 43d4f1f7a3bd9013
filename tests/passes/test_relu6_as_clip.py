"""Chains of clamps become one Clip with the same values, at every opset and in float16."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

X = np.linspace(-3, 9, 12, dtype=np.float32).reshape(2, 6)
NUMBERS = {
    "zero": np.float32(0),
    "six": np.float32(6),
    "ones": np.float32([[1]]),
    "many": np.float32([1, 2, 3, 4, 5, 6]),
}


def node(op: str, *inputs: str, out: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [out], name=f"{op}_{out}", **attributes)


FORMS = {
    "min of max": [node("Max", "x", "zero", out="t"), node("Min", "t", "six", out="y")],
    "max of min": [node("Min", "six", "x", out="t"), node("Max", "zero", "t", out="y")],
    "min of relu": [node("Relu", "x", out="t"), node("Min", "t", "six", out="y")],
    "relu of min": [node("Min", "x", "six", out="t"), node("Relu", "t", out="y")],
}


def constants_of(nodes: list[onnx.NodeProto], dtype: type = np.float32) -> dict[str, np.ndarray]:
    return {name: NUMBERS[name].astype(dtype) for n in nodes for name in n.input if name in NUMBERS}


@pytest.mark.parametrize("opset", [8, 10, 11, 13, 17, 20])
@pytest.mark.parametrize("form", FORMS)
def test_relu6_in_two_nodes_becomes_one_clip(form: str, opset: int) -> None:
    nodes = FORMS[form]
    model = build_model(nodes, {"x": (2, 6)}, ["y"], constants_of(nodes), opset=opset)
    graph, report = assert_pass_keeps_outputs(model, "relu6_as_clip", {"x": X})
    (clip,) = graph.nodes()
    assert clip.op == "Clip"
    assert report.changed == (f"node '{nodes[1].name}' (Clip): clamps to [0, 6] for 2 nodes",)
    assert graph.origins.current_node(nodes[0].name) == nodes[1].name
    if opset < 11:
        assert (clip.attrs["min"], clip.attrs["max"], len(clip.inputs)) == (0.0, 6.0, 1)
    else:
        assert [graph.values(bound).tolist() for bound in clip.inputs[1:]] == [0.0, 6.0]


def test_relu_before_a_clip_is_absorbed_in_both_forms_of_clip() -> None:
    old = [node("Relu", "x", out="t"), node("Clip", "t", out="y", max=6.0)]
    new = [node("Relu", "x", out="t"), node("Clip", "t", "", "six", out="y")]
    for nodes, opset in ((old, 9), (new, 13)):
        model = build_model(nodes, {"x": (2, 6)}, ["y"], constants_of(nodes), opset=opset)
        graph, _ = assert_pass_keeps_outputs(model, "relu6_as_clip", {"x": X})
        assert [n.op for n in graph.nodes()] == ["Clip"]


def test_float16_bounds_stay_float16() -> None:
    nodes = FORMS["max of min"]
    model = build_model(
        nodes, {"x": (2, 6)}, ["y"], constants_of(nodes, np.float16), opset=13, element_type=TensorProto.FLOAT16
    )
    graph, _ = assert_pass_keeps_outputs(model, "relu6_as_clip", {"x": X.astype(np.float16)})
    assert all(graph.values(bound).dtype == np.float16 for bound in graph.nodes()[0].inputs[1:])


def test_three_clamps_in_a_row_become_one() -> None:
    nodes = [node("Relu", "x", out="s"), node("Min", "s", "six", out="t"), node("Max", "t", "ones", out="y")]
    graph, _ = assert_pass_keeps_outputs(
        build_model(nodes, {"x": (2, 6)}, ["y"], constants_of(nodes)), "relu6_as_clip", {"x": X}
    )
    (clip,) = graph.nodes()
    assert [graph.values(bound).tolist() for bound in clip.inputs[1:]] == [1.0, 6.0]


def test_a_value_read_in_between_keeps_both_nodes() -> None:
    nodes = [*FORMS["min of relu"], node("Neg", "t", out="z")]
    graph, report = assert_pass_keeps_outputs(
        build_model(nodes, {"x": (2, 6)}, ["y", "z"], constants_of(nodes)), "relu6_as_clip", {"x": X}
    )
    assert len(graph.nodes()) == 3
    assert report.declined == (
        "node 'Min_y' (Min): could be one Clip with the node before, but 't' inside of it is also read by node 'Neg_z'",
    )


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Max", "x", "many", out="t"), node("Min", "t", "six", out="y")],
        [node("Relu", "x", out="t"), node("Relu", "t", out="y")],
        [node("Max", "x", "zero", "six", out="t"), node("Min", "t", "six", out="y")],
        [node("Relu", "x", out="t"), node("Max", "t", "zero", out="y")],
    ],
)
def test_what_is_no_clamp_by_two_numbers_stays(nodes: list[onnx.NodeProto]) -> None:
    graph, report = assert_pass_keeps_outputs(
        build_model(nodes, {"x": (2, 6)}, ["y"], constants_of(nodes)), "relu6_as_clip", {"x": X}
    )
    assert report.changed == ()
    assert len(graph.nodes()) == 2


def test_integers_stay() -> None:
    nodes = [node("Max", "x", "low", out="t"), node("Min", "t", "high", out="y")]
    bounds = {"low": np.int32(0), "high": np.int32(6)}
    model = build_model(nodes, {"x": (2, 6)}, ["y"], bounds, element_type=TensorProto.INT32)
    _, report = assert_pass_keeps_outputs(model, "relu6_as_clip", {"x": X.astype(np.int32)})
    assert report.declined == ("node 'Min_y' (Min): its bounds are int32",)


def test_clamps_in_a_branch_merge_there() -> None:
    def branch(name: str) -> onnx.GraphProto:
        nodes = [node("Relu", "x", out=f"{name}_t"), node("Min", f"{name}_t", "six", out=f"{name}_y")]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [2, 6])]
        )

    choose = helper.make_node("If", ["flag"], ["y"], then_branch=branch("t"), else_branch=branch("e"))
    model = build_model([choose], {"x": (2, 6)}, ["y"], {"flag": np.array(True), "six": NUMBERS["six"]})
    graph, report = assert_pass_keeps_outputs(model, "relu6_as_clip", {"x": X})
    assert len(report.changed) == 2
    assert [n.op for n in graph.nodes()] == ["If", "Clip", "Clip"]
