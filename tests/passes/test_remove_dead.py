"""What no output depends on leaves, with its initializers; what a branch reads stays."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [2, 3])])


def test_dead_nodes_leave_with_what_only_they_read() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Mul", ["x", "w"], ["unread"], name="first"),
        helper.make_node("Neg", ["unread"], ["unread_too"], name="second"),
    ]
    model = build_model(nodes, {"x": (2, 3)}, ["y"], {"w": np.float32([2])})
    graph, report = assert_pass_keeps_outputs(model, "remove_dead", {"x": X})
    assert [node.op for node in graph.nodes()] == ["Relu"]
    assert sorted(report.changed) == [
        "initializer 'w': removed, nobody reads it",
        "node 'first' (Mul): removed, nobody reads its results",
        "node 'second' (Neg): removed, nobody reads its results",
    ]
    assert not graph.has_tensor("w")
    assert set(graph.origins.removed) == {"first", "second"}


def test_dead_nodes_in_a_branch_leave_and_free_what_they_captured() -> None:
    then_branch = branch(
        "t",
        helper.make_node("Neg", ["only_for_the_dead"], ["t_dead"], name="dead"),
        helper.make_node("Add", ["captured", "x"], ["t_y"]),
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["captured"], name="alive"),
        helper.make_node("Abs", ["x"], ["only_for_the_dead"], name="freed"),
        helper.make_node(
            "If",
            ["flag"],
            ["y"],
            then_branch=then_branch,
            else_branch=branch("e", helper.make_node("Neg", ["x"], ["e_y"])),
        ),
    ]
    model = build_model(nodes, {"x": (2, 3)}, ["y"], {"flag": np.array(True)})
    graph, report = assert_pass_keeps_outputs(model, "remove_dead", {"x": X})
    assert len(report.changed) == 2
    assert graph.has_node("alive")
    assert not graph.has_node("freed")
    assert not graph.has_node("dead")


def test_unused_initializers_leave_and_used_ones_stay() -> None:
    then_branch = branch("t", helper.make_node("Add", ["x", "in_branch"], ["t_y"]))
    else_branch = branch("e", helper.make_node("Neg", ["x"], ["e_y"]))
    nodes = [helper.make_node("If", ["flag"], ["y"], then_branch=then_branch, else_branch=else_branch)]
    constants = {"flag": np.array(True), "in_branch": np.float32([1]), "unused": np.float32([2])}
    model = build_model(nodes, {"x": (2, 3)}, ["y"], constants)
    graph, report = assert_pass_keeps_outputs(model, "remove_unused_initializers", {"x": X})
    assert report.changed == ("initializer 'unused': removed, nobody reads it",)
    assert graph.has_tensor("in_branch")
