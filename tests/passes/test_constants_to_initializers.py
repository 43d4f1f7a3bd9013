"""Constant nodes become initializers under the same name, unless an output needs a node."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph, LazyValues
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def constant(name: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], name=f"make_{name}", **attributes)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("value", numpy_helper.from_array(np.float32([1.5, 2, 3]))),
        ("value_float", 2.5),
        ("value_floats", [1.0, -2.0, 0.5]),
    ],
)
def test_each_form_of_a_float_constant_keeps_its_name_and_value(attribute: str, value: object) -> None:
    nodes = [constant("c", **{attribute: value}), helper.make_node("Mul", ["x", "c"], ["y"], name="scale")]
    model = build_model(nodes, {"x": (2, 3)}, ["y"])
    graph, report = assert_pass_keeps_outputs(model, "constants_to_initializers", {"x": X})
    assert report.changed == ("node 'make_c' (Constant): became the initializer 'c'",)
    assert [node.op for node in graph.nodes()] == ["Mul"]
    assert graph.is_constant("c")
    assert "make_c" in graph.origins.removed


@pytest.mark.parametrize(("attribute", "value"), [("value_int", 3), ("value_ints", [3, 2])])
def test_integer_constants_become_int64(attribute: str, value: object) -> None:
    nodes = [constant("c", **{attribute: value}), helper.make_node("Expand", ["x", "c"], ["y"])]
    graph, _ = assert_pass_keeps_outputs(
        build_model(nodes, {"x": (1,)}, ["y"]) if attribute == "value_ints" else one_dimension(nodes),
        "constants_to_initializers",
        {"x": X[0, :1]},
    )
    assert graph.values("c").dtype == np.int64


def one_dimension(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Expand wants a list; the single number becomes one."""
    unsqueeze = helper.make_node("Unsqueeze", ["c", "zero"], ["list"])
    expand = helper.make_node("Expand", ["x", "list"], ["y"])
    return build_model([nodes[0], unsqueeze, expand], {"x": (1,)}, ["y"], {"zero": np.int64([0])})


def test_text_constants_survive_writing() -> None:
    nodes = [constant("word", value_strings=["a", "b"]), helper.make_node("Identity", ["word"], ["y"])]
    model = build_model(nodes, {"x": (2, 3)}, {})
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.STRING, [2]))
    graph = Graph.from_model(model)
    run_passes(graph, ["constants_to_initializers"])
    written = graph.to_model()
    onnx.checker.check_model(written)
    assert numpy_helper.to_array(written.graph.initializer[0]).tolist() == ["a", "b"]


def test_a_constant_that_is_an_output_stays_a_node() -> None:
    nodes = [constant("c", value_float=1.0), helper.make_node("Add", ["x", "c"], ["y"])]
    graph, report = assert_pass_keeps_outputs(
        build_model(nodes, {"x": (2, 3)}, ["y", "c"]), "constants_to_initializers", {"x": X}
    )
    assert report.declined == ("node 'make_c' (Constant): its value is the output 'c' of the graph",)
    assert graph.has_node("make_c")


def test_values_are_not_read() -> None:
    values = numpy_helper.from_array(np.zeros((64, 64), np.float32))
    nodes = [constant("c", value=values), helper.make_node("MatMul", ["x", "c"], ["y"])]
    graph = Graph.from_model(build_model(nodes, {"x": (1, 64)}, ["y"]))
    run_passes(graph, ["constants_to_initializers"])
    assert isinstance(graph.tensor("c")._values, LazyValues)


def test_a_constant_in_a_branch_becomes_an_initializer_of_the_branch() -> None:
    def branch(name: str, number: float) -> onnx.GraphProto:
        nodes = [constant(f"{name}_c", value_float=number), helper.make_node("Add", ["x", f"{name}_c"], [f"{name}_y"])]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [2, 3])]
        )

    choose = helper.make_node("If", ["flag"], ["y"], then_branch=branch("a", 1.0), else_branch=branch("b", 2.0))
    model = build_model([choose], {"x": (2, 3)}, ["y"], {"flag": np.array(False)})
    graph, report = assert_pass_keeps_outputs(model, "constants_to_initializers", {"x": X})
    assert len(report.changed) == 2
    assert sorted(list(scope.initializers) for scope in graph.scopes()) == [["a_c"], ["b_c"], ["flag"]]


def test_old_models_that_list_their_initializers_as_inputs_stay_valid() -> None:
    nodes = [
        constant("c", value=numpy_helper.from_array(np.float32([1, 2, 3]))),
        helper.make_node("Mul", ["x", "c"], ["y"]),
    ]
    graph, report = assert_pass_keeps_outputs(
        build_model(nodes, {"x": (2, 3)}, ["y"], opset=8), "constants_to_initializers", {"x": X}
    )
    assert len(report.changed) == 1
    assert graph.input_names == ["x"]
