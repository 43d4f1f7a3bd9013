"""Nodes that return their input leave, names of inputs and outputs stay, and nothing that computes is lost."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxq.graph import Graph
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def operators(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes()]


def between_relu_and_neg(node: onnx.NodeProto, constants: dict[str, np.ndarray], opset: int = 17) -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), node, helper.make_node("Neg", ["i"], ["y"])]
    return build_model(nodes, {"x": (2, 3)}, ["y"], constants, opset=opset)


IDENTITIES = {
    "identity": (helper.make_node("Identity", ["r"], ["i"], name="n"), {}, 17),
    "cast": (helper.make_node("Cast", ["r"], ["i"], name="n", to=TensorProto.FLOAT), {}, 17),
    "cast like": (helper.make_node("CastLike", ["r", "r"], ["i"], name="n"), {}, 17),
    "concat of one": (helper.make_node("Concat", ["r"], ["i"], name="n", axis=0), {}, 17),
    "sum of one": (helper.make_node("Sum", ["r"], ["i"], name="n"), {}, 17),
    "max of one": (helper.make_node("Max", ["r"], ["i"], name="n"), {}, 17),
    "transpose in order": (helper.make_node("Transpose", ["r"], ["i"], name="n", perm=[0, 1]), {}, 17),
    "flatten of a matrix": (helper.make_node("Flatten", ["r"], ["i"], name="n"), {}, 17),
    "reshape": (helper.make_node("Reshape", ["r", "s"], ["i"], name="n"), {"s": np.int64([0, -1])}, 17),
    "reshape by number": (helper.make_node("Reshape", ["r", "s"], ["i"], name="n"), {"s": np.int64([2, 3])}, 17),
    "pad attribute": (helper.make_node("Pad", ["r"], ["i"], name="n", pads=[0, 0, 0, 0]), {}, 10),
    "pad input": (helper.make_node("Pad", ["r", "s"], ["i"], name="n"), {"s": np.int64([0, 0, 0, 0])}, 17),
}


@pytest.mark.parametrize("form", IDENTITIES)
def test_a_node_that_returns_its_input_leaves(form: str) -> None:
    node, constants, opset = IDENTITIES[form]
    graph, report = assert_pass_keeps_outputs(between_relu_and_neg(node, constants, opset), "remove_identity", {"x": X})
    assert operators(graph) == ["Relu", "Neg"]
    assert report.changed == (f"node 'n' ({node.op_type}): removed, it returned its input unchanged",)
    assert graph.origins.current_tensor("i") == "r"
    assert graph.origins.removed["n"] == "it returned its input unchanged"


COMPUTING = {
    "transpose": (helper.make_node("Transpose", ["r"], ["i"]), {}),
    "reshape": (helper.make_node("Reshape", ["r", "s"], ["i"]), {"s": np.int64([3, 2])}),
    "reshape to more dimensions": (helper.make_node("Reshape", ["r", "s"], ["i"]), {"s": np.int64([2, 3, 1])}),
    "pad": (helper.make_node("Pad", ["r", "s"], ["i"]), {"s": np.int64([0, 1, 0, 0])}),
    "concat": (helper.make_node("Concat", ["r", "r"], ["i"], axis=0), {}),
    "flatten": (helper.make_node("Flatten", ["r"], ["i"], axis=0), {}),
}


@pytest.mark.parametrize("form", COMPUTING)
def test_a_node_that_changes_something_stays(form: str) -> None:
    node, constants = COMPUTING[form]
    graph, report = assert_pass_keeps_outputs(between_relu_and_neg(node, constants), "remove_identity", {"x": X})
    assert report.changed == ()
    assert len(graph.nodes()) == 3


def test_a_cast_to_another_type_and_back_stays() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT32),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    _, report = assert_pass_keeps_outputs(build_model(nodes, {"x": (2, 3)}, ["y"]), "remove_identity", {"x": X})
    assert report.changed == ()


def test_a_reshape_of_a_symbolic_batch_is_recognised() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Neg", ["r"], ["y"])]
    model = build_model(nodes, {"x": ("n", 3)}, {"y": ("n", 3)}, {"s": np.int64([-1, 3])})
    graph, _ = assert_pass_keeps_outputs(model, "remove_identity", {"x": X})
    assert operators(graph) == ["Neg"]


def test_an_output_keeps_its_name_and_its_declaration() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Identity", ["r"], ["y"]),
        helper.make_node("Neg", ["r"], ["z"]),
    ]
    model = build_model(nodes, {"x": ("batch", 3)}, {"y": ("rows", 3), "z": ("batch", 3)})
    graph, _ = assert_pass_keeps_outputs(model, "remove_identity", {"x": X})
    assert operators(graph) == ["Relu", "Neg"]
    assert graph.origins.current_tensor("r") == "y"


def test_a_chain_of_identities_leaves_at_once() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["t0"])]
    nodes += [helper.make_node("Identity", [f"t{i}"], [f"t{i + 1}"]) for i in range(5)]
    nodes += [helper.make_node("Identity", ["t5"], ["y"])]
    graph, report = assert_pass_keeps_outputs(build_model(nodes, {"x": (2, 3)}, ["y"]), "remove_identity", {"x": X})
    assert operators(graph) == ["Relu"]
    assert len(report.changed) == 6
    assert graph.origins.current_tensor("t3") == "y"


@pytest.mark.parametrize("source", ["x", "c"])
def test_an_input_or_constant_that_is_also_an_output_keeps_its_node(source: str) -> None:
    nodes = [helper.make_node("Identity", [source], ["y"], name="n"), helper.make_node("Add", ["x", "c"], ["z"])]
    model = build_model(nodes, {"x": (2, 3)}, ["y", "z"], {"c": np.float32([[1, 2, 3]])})
    graph, report = assert_pass_keeps_outputs(model, "remove_identity", {"x": X})
    assert graph.has_node("n")
    assert report.declined == (
        f"node 'n' (Identity): it connects '{source}', which is not computed here, directly to the output 'y'",
    )


def test_two_outputs_with_the_same_value_keep_the_node_between() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["y"], ["z"], name="n")]
    graph, report = assert_pass_keeps_outputs(
        build_model(nodes, {"x": (2, 3)}, ["y", "z"]), "remove_identity", {"x": X}
    )
    assert graph.has_node("n")
    assert "both its input 'y' and its output 'z' are outputs" in report.declined[0]


def test_branches_that_return_an_outer_value_keep_their_node() -> None:
    def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [2, 3])]
        )

    then_branch = branch("t", helper.make_node("Identity", ["r"], ["t_y"], name="outer"))
    else_branch = branch(
        "e",
        helper.make_node("Neg", ["r"], ["e_n"]),
        helper.make_node("Identity", ["e_n"], ["e_y"], name="inner"),
    )
    nodes = [
        helper.make_node("Identity", ["x"], ["r"], name="before"),
        helper.make_node("If", ["flag"], ["y"], then_branch=then_branch, else_branch=else_branch),
    ]
    for flag in (False, True):
        model = build_model(nodes, {"x": (2, 3)}, ["y"], {"flag": np.array(flag)})
        graph, report = assert_pass_keeps_outputs(model, "remove_identity", {"x": X})
        assert sorted(operators(graph)) == ["Identity", "If", "Neg"]
        assert graph.has_node("outer")
        assert len(report.declined) == 1


def test_ten_thousand_nodes_take_seconds() -> None:
    nodes = [helper.make_node("Identity", ["x" if i == 0 else f"t{i - 1}"], [f"t{i}"]) for i in range(10_000)]
    nodes.append(helper.make_node("Relu", ["t9999"], ["y"]))
    graph = Graph.from_model(build_model(nodes, {"x": (1,)}, ["y"]))
    start = time.process_time()
    run_passes(graph, ["remove_identity"])
    assert time.process_time() - start < 10, "quadratic work would take minutes"
    assert operators(graph) == ["Relu"]
