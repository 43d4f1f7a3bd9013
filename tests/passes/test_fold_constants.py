"""What can be computed before running is computed, as onnxruntime would, and what must not be folded says why."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph, LazyValues
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
A = np.float32([[1, -2, 3], [0.5, 4, -6]])
B = np.float32([[2, 2, -4], [8, 0.25, 3]])


def operators(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes()]


SINGLE_NODES = {
    "Add": (["a", "b"], {}),
    "Sub": (["a", "b"], {}),
    "Mul": (["a", "b"], {}),
    "Div": (["a", "b"], {}),
    "Sqrt": (["positive"], {}),
    "Neg": (["a"], {}),
    "Unsqueeze": (["a", "axis"], {}),
    "Squeeze": (["with_one", "axis"], {}),
    "Reshape": (["a", "shape"], {}),
    "Transpose": (["a"], {}),
    "Concat": (["a", "b"], {"axis": 1}),
    "Gather": (["a", "index"], {"axis": 1}),
    "Slice": (["a", "one", "two", "one"], {}),
    "Expand": (["row", "shape"], {}),
    "Tile": (["a", "shape"], {}),
    "Where": (["mask", "a", "b"], {}),
    "MatMul": (["a", "column"], {}),
    "ReduceMean": (["a"], {"axes": [1]}),
    "Clip": (["a", "", "limit"], {}),
    "Erf": (["a"], {}),
}
CONSTANTS = {
    "a": A,
    "b": B,
    "positive": np.abs(A),
    "with_one": A[None],
    "axis": np.int64([0]),
    "shape": np.int64([3, 2]),
    "index": np.int64([2, -1, 0]),
    "one": np.int64([1]),
    "two": np.int64([2]),
    "row": A[:1, :1],
    "mask": A > 0,
    "column": B.reshape(3, 2),
    "limit": np.float32(2),
}


@pytest.mark.parametrize("op", SINGLE_NODES)
def test_one_operator_folds_to_what_onnxruntime_computes(op: str) -> None:
    inputs, attributes = SINGLE_NODES[op]
    nodes = [
        helper.make_node(op, inputs, ["folded"], name="known", **attributes),
        helper.make_node("Mul", ["folded", "x"], ["y"], name="unknown"),
    ]
    used = {name: CONSTANTS[name] for name in inputs if name}
    model = build_model(nodes, {"x": (1,)}, ["y"], used)
    graph, report = assert_pass_keeps_outputs(model, "fold_constants", {"x": np.float32([1.5])})
    assert operators(graph) == ["Mul"]
    assert graph.is_constant("folded")
    assert report.changed == (f"node 'known' ({op}): became the constant 'folded'",)
    assert "known" in graph.origins.removed


@pytest.mark.parametrize(("dividend", "divisor"), [(-7, 2), (7, -2), (7, 2), (-8, 2)])
def test_integer_division_rounds_towards_zero(dividend: int, divisor: int) -> None:
    nodes = [
        helper.make_node("Div", ["a", "b"], ["quotient"]),
        helper.make_node("Cast", ["quotient"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "number"], ["y"]),
    ]
    model = build_model(nodes, {"x": (2, 3)}, ["y"], {"a": np.int64([dividend]), "b": np.int64([divisor])})
    graph, _ = assert_pass_keeps_outputs(model, "fold_constants", {"x": X})
    assert operators(graph) == ["Add"]


def test_a_chain_from_a_known_shape_to_a_reshape_folds_in_one_run() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axis"], ["batch_list"]),
        helper.make_node("Concat", ["batch_list", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node("Shape", ["flat"], ["flat_shape"]),
        helper.make_node("Cast", ["flat_shape"], ["sizes"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["flat", "sizes"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "axis": np.int64([0]), "rest": np.int64([-1])}
    model = build_model(nodes, {"x": (2, 2, 1)}, ["y"], constants)
    graph, _ = assert_pass_keeps_outputs(model, "fold_constants", {"x": X.reshape(-1)[:4].reshape(2, 2, 1)})
    assert operators(graph) == ["Reshape", "Mul"]
    assert graph.values("target").tolist() == [2, -1]


def test_shapes_are_inferred_where_the_file_does_not_tell_them() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Size", ["r"], ["size"]),
        helper.make_node("Cast", ["size"], ["count"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["r", "count"], ["y"]),
    ]
    graph = Graph.from_model(build_model(nodes, {"x": (2, 3)}, ["y"]))
    run_passes(graph, ["fold_constants"])
    assert operators(graph) == ["Relu", "Div"]
    assert graph.values("count") == 6.0


def test_the_shape_of_a_dynamic_tensor_stays() -> None:
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT)]
    graph, report = assert_pass_keeps_outputs(build_model(nodes, {"x": ("n", 3)}, ["y"]), "fold_constants", {"x": X})
    assert operators(graph) == ["Shape", "Cast"]
    assert report.changed == ()


def test_part_of_a_shape_is_taken_as_the_attributes_say() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=-2, end=-1),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    graph, _ = assert_pass_keeps_outputs(build_model(nodes, {"x": (2, 3)}, ["y"]), "fold_constants", {"x": X})
    assert graph.values("s").tolist() == [2]


@pytest.mark.parametrize(
    ("node", "constants", "reason"),
    [
        (
            helper.make_node("DequantizeLinear", ["q", "scale"], ["c"], name="n"),
            {"q": np.int8([1, 2, 3]), "scale": np.float32(0.5)},
            "what is quantized already stays as the file has it",
        ),
        (
            helper.make_node("RandomNormalLike", ["a"], ["c"], name="n", seed=1.0, scale=1e-20),
            {"a": A},
            "it draws random numbers",
        ),
        (
            helper.make_node("ConstantOfShape", ["huge"], ["c"], name="n"),
            {"huge": np.int64([1, 1_000_000])},
            "its result takes 8,000,000 bytes, more than 1,048,640 would allow for its inputs",
        ),
        (
            helper.make_node("Expand", ["a", "huge"], ["c"], name="n"),
            {"a": np.float32([1]), "huge": np.int64([1_000_000])},
            "its result takes 4,000,000 bytes, more than 1,048,624 would allow for its inputs",
        ),
    ],
)
def test_what_must_not_be_folded_is_declined_with_the_reason(
    node: onnx.NodeProto, constants: dict[str, np.ndarray], reason: str
) -> None:
    nodes = [node, helper.make_node("ReduceMax", ["c"], ["m"]), helper.make_node("Add", ["x", "m"], ["y"])]
    graph, report = assert_pass_keeps_outputs(
        build_model(nodes, {"x": (2, 3)}, ["y"], constants), "fold_constants", {"x": X}
    )
    assert f"node 'n' ({node.op_type}): {reason}" in report.declined
    assert graph.has_node("n")


def test_operators_of_other_domains_stay() -> None:
    nodes = [
        helper.make_node("Gelu", ["a"], ["c"], name="n", domain="com.microsoft"),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    model = build_model(nodes[1:], {"x": (2, 3), "c": (2, 3)}, ["y"], {"a": A})
    model.graph.node.insert(0, nodes[0])
    model.graph.input.pop()
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    graph, report = assert_pass_keeps_outputs(model, "fold_constants", {"x": X})
    assert graph.has_node("n")
    assert report.changed == ()


def test_a_result_that_is_an_output_stays_a_node() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"], name="n")]
    graph, report = assert_pass_keeps_outputs(
        build_model(nodes, {"x": (2, 3)}, ["y"], {"a": A}), "fold_constants", {"x": X}
    )
    assert report.declined == ("node 'n' (Neg): its result 'y' is an output of the graph",)
    assert graph.has_node("n")


def test_what_the_evaluator_cannot_compute_is_declined_in_its_words() -> None:
    nodes = [helper.make_node("Reshape", ["a", "shape"], ["c"], name="n"), helper.make_node("Add", ["x", "c"], ["y"])]
    model = build_model(nodes, {"x": (2, 3)}, ["y"], {"a": A, "shape": np.int64([2, 3])})
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.int64([4, 4]), "shape"))
    graph = Graph.from_model(model)
    report = run_passes(graph, ["fold_constants"])[0]
    assert report.declined[0].startswith("node 'n' (Reshape): the ONNX reference implementation cannot compute it: ")
    assert graph.has_node("n")


def test_every_output_of_a_split_becomes_a_constant() -> None:
    nodes = [
        helper.make_node("Split", ["a"], ["first", "second"], axis=0),
        helper.make_node("Add", ["x", "first"], ["s"]),
        helper.make_node("Mul", ["s", "second"], ["y"]),
    ]
    graph, _ = assert_pass_keeps_outputs(build_model(nodes, {"x": (2, 3)}, ["y"], {"a": A}), "fold_constants", {"x": X})
    assert graph.values("second").tolist() == A[1:].tolist()


def test_float16_stays_float16() -> None:
    nodes = [helper.make_node("Add", ["a", "a"], ["c"]), helper.make_node("Mul", ["x", "c"], ["y"])]
    model = build_model(nodes, {"x": (2, 3)}, ["y"], {"a": A.astype(np.float16)}, element_type=TensorProto.FLOAT16)
    graph, _ = assert_pass_keeps_outputs(model, "fold_constants", {"x": X.astype(np.float16)}, rtol=1e-3)
    assert graph.values("c").dtype == np.float16


def test_a_large_weight_is_transposed_only_when_it_is_read() -> None:
    weight = np.arange(600 * 500, dtype=np.float32).reshape(600, 500)
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("Mul", ["t", "two"], ["w2"]),
        helper.make_node("MatMul", ["x", "w2"], ["y"]),
    ]
    model = build_model(nodes, {"x": (1, 500)}, ["y"], {"w": weight, "two": np.float32(2)})
    graph, _ = assert_pass_keeps_outputs(model, "fold_constants", {"x": np.ones((1, 500), np.float32)})
    assert operators(graph) == ["MatMul"]
    assert isinstance(graph.tensor("w2")._values, LazyValues)
    np.testing.assert_array_equal(graph.values("w2"), weight.T * 2)


def test_nodes_in_a_branch_fold_with_constants_from_outside() -> None:
    def branch(name: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("Neg", ["doubled"], [f"{name}_c"]),
            helper.make_node("Add", ["x", f"{name}_c"], [f"{name}_y"]),
        ]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [2, 3])]
        )

    nodes = [
        helper.make_node("Add", ["a", "a"], ["doubled"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=branch("t"), else_branch=branch("e")),
    ]
    model = build_model(nodes, {"x": (2, 3)}, ["y"], {"a": A, "flag": np.array(True)})
    graph, report = assert_pass_keeps_outputs(model, "fold_constants", {"x": X})
    assert len(report.changed) == 3
    assert operators(graph) == ["If", "Add", "Add"]


def test_ten_thousand_nodes_take_seconds() -> None:
    nodes = [helper.make_node("Add", ["a" if i == 0 else f"t{i - 1}", "a"], [f"t{i}"]) for i in range(10_000)]
    nodes.append(helper.make_node("Add", ["x", "t9999"], ["y"]))
    graph = Graph.from_model(build_model(nodes, {"x": (1,)}, ["y"], {"a": np.float32([1])}))
    start = time.process_time()
    run_passes(graph, ["fold_constants"])
    assert time.process_time() - start < 30, "quadratic work would take minutes"
    assert graph.values("t9999") == 10_001
