"""bfloat16 and float16 models compute in float32 inside, with the same inputs, outputs and (nearly) numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph, LazyValues
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model, run_model

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALF = np.float16
X = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)


def narrow_types(model: onnx.ModelProto, narrow: int) -> list[str]:
    """Everything in a model, inputs and outputs apart, that still has the narrow type."""
    graphs, found = [model.graph], []
    io = {info.name for info in [*model.graph.input, *model.graph.output]}
    while graphs:
        graph = graphs.pop()
        infos = [*graph.value_info, *graph.input, *graph.output]
        found += [info.name for info in infos if info.name not in io and info.type.tensor_type.elem_type == narrow]
        found += [tensor.name for tensor in graph.initializer if tensor.data_type == narrow]
        for node in graph.node:
            graphs += [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
            found += [f"{node.name}.{a.name}" for a in node.attribute if a.t.data_type == narrow]
    return found


def half_model(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
) -> onnx.ModelProto:
    return build_model(nodes, {"x": (2, 8)}, outputs, constants, opset=opset, element_type=TensorProto.FLOAT16)


def linear_nodes() -> list[onnx.NodeProto]:
    return [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="matmul"),
        helper.make_node("Add", ["m", "b"], ["a"], name="add"),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
    ]


def test_a_float16_model_computes_in_float32() -> None:
    model = half_model(linear_nodes(), {"w": W.astype(HALF), "b": np.ones(4, HALF)})
    graph, report = assert_pass_keeps_outputs(model, "widen_float16", {"x": X.astype(HALF)}, rtol=1e-2)
    assert [node.op for node in graph.nodes()] == ["Cast", "MatMul", "Add", "Relu", "Cast"]
    assert narrow_types(graph.to_model(), TensorProto.FLOAT16) == []
    np.testing.assert_array_equal(graph.values("w"), W.astype(HALF).astype(np.float32))
    assert "initializer 'w': converted to float32" in report.changed
    assert graph.input_names == ["x"]
    assert graph.output_names == ["y"]


def test_a_bfloat16_model_that_onnxruntime_cannot_run_runs_afterwards() -> None:
    bias = np.linspace(-1, 1, 4).astype(BFLOAT16)
    graph_proto = helper.make_graph(
        linear_nodes(),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, ("n", 8))],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, ("n", 4))],
        [numpy_helper.from_array(W.astype(BFLOAT16), "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph_proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graph = Graph.from_model(model)
    run_passes(graph, ["widen_bfloat16"])
    written = graph.to_model()
    onnx.checker.check_model(written, full_check=True)
    assert narrow_types(written, TensorProto.BFLOAT16) == []
    assert (written.graph.input, written.graph.output) == (model.graph.input, model.graph.output)

    # onnxruntime's Python interface takes no bfloat16 arrays, so the Casts at the border are taken off for the referee.
    for node in [node for node in written.graph.node if node.op_type == "Cast"]:
        node.attribute[0].i = TensorProto.FLOAT
    for info in [*written.graph.input, *written.graph.output]:
        info.type.tensor_type.elem_type = TensorProto.FLOAT
    expected = np.maximum(X @ W.astype(BFLOAT16).astype(np.float32) + bias.astype(np.float32), 0)
    np.testing.assert_allclose(run_model(written, {"x": X})["y"], expected, rtol=1e-5, atol=1e-5)


def test_a_bfloat16_model_with_float_borders_runs() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=TensorProto.BFLOAT16),
        helper.make_node("Mul", ["n", "c"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
    ]
    model = build_model(nodes, {"x": (2, 8)}, ["y"], {"c": np.array(1.5, BFLOAT16)})
    graph = Graph.from_model(model)
    run_passes(graph, ["widen_bfloat16"])
    np.testing.assert_array_equal(run_model(graph.to_model(), {"x": X})["y"], X * np.float32(1.5))


def test_attributes_that_name_the_type_are_changed() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(HALF([1.5]))),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node(
            "ConstantOfShape", ["s"], ["f"], value=helper.make_tensor("v", TensorProto.FLOAT16, [1], HALF([2]))
        ),
        helper.make_node("EyeLike", ["x"], ["i"], dtype=TensorProto.FLOAT16),
        helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
        helper.make_node("Cast", ["d"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Sum", ["f", "i", "h", "c"], ["y"]),
    ]
    graph = Graph.from_model(half_model(nodes, {}))
    run_passes(graph, ["widen_float16"])
    written = graph.to_model()
    onnx.checker.check_model(written, full_check=True)
    assert narrow_types(written, TensorProto.FLOAT16) == []
    got = run_model(written, {"x": X.astype(HALF)})["y"]
    np.testing.assert_allclose(got, 3.5 + np.eye(2, 8) + X, rtol=1e-2, atol=1e-2)


def test_branches_compute_in_float32_too() -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        nodes = [helper.make_node(op, ["x", f"{name}_c"], [f"{name}_y"])]
        output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT16, [2, 8])
        return helper.make_graph(nodes, name, [], [output], [numpy_helper.from_array(HALF([2]), f"{name}_c")])

    choose = helper.make_node("If", ["flag"], ["z"], then_branch=branch("t", "Add"), else_branch=branch("e", "Mul"))
    model = half_model([choose, helper.make_node("Relu", ["z"], ["y"])], {"flag": np.array(True)})
    graph, _ = assert_pass_keeps_outputs(model, "widen_float16", {"x": X.astype(HALF)}, rtol=1e-2)
    assert narrow_types(graph.to_model(), TensorProto.FLOAT16) == []


def test_a_loop_carries_float32() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Add", ["v", "v"], ["next"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT16, [2, 8]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT16, [2, 8]),
        ],
    )
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)]
    model = build_model(nodes, {"x": (2, 8)}, {"y": (2, 8)}, {"count": np.int64(3)}, element_type=TensorProto.FLOAT16)
    graph, _ = assert_pass_keeps_outputs(model, "widen_float16", {"x": X.astype(HALF)}, rtol=1e-2)
    assert narrow_types(graph.to_model(), TensorProto.FLOAT16) == []


def test_an_output_that_is_read_inside_is_read_in_float32_there() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    graph, _ = assert_pass_keeps_outputs(
        half_model(nodes, {}, ("y", "z")), "widen_float16", {"x": X.astype(HALF)}, rtol=1e-2
    )
    assert graph.producer(graph.node("Neg_z").inputs[0]).op == "Exp"


def test_an_input_that_is_also_an_output_stays_as_it_is() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    model = half_model(nodes, {})
    model.graph.output.append(model.graph.input[0])
    graph = Graph.from_model(model)
    run_passes(graph, ["widen_float16"])
    assert graph.output_names == ["y", "x"]
    onnx.checker.check_model(graph.to_model())


def test_custom_operators_keep_the_type_that_they_were_made_for() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Mystery", ["r", "w"], ["m"], domain="some.vendor", name="custom"),
        helper.make_node("Neg", ["m"], ["y"]),
    ]
    model = half_model([nodes[0], helper.make_node("Neg", ["r"], ["y"])], {"w": W.astype(HALF)})
    model.graph.node.pop()
    model.graph.node.extend(nodes[1:])
    model.opset_import.append(helper.make_opsetid("some.vendor", 1))
    model.graph.value_info.append(helper.make_tensor_value_info("m", TensorProto.FLOAT16, (2, 8)))
    graph = Graph.from_model(model)
    run_passes(graph, ["widen_float16"])
    custom = graph.node("custom")
    assert [graph.dtype(tensor) for tensor in [*custom.inputs, *custom.outputs]] == [np.dtype(HALF)] * 3
    assert [node.op for node in graph.nodes()].count("Cast") == 5
    assert run_passes(graph, ["widen_float16"])[0].changed == ()


def test_large_weights_are_converted_when_they_are_read() -> None:
    weight = np.ones((1024, 600), HALF)
    model = build_model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": (1, 1024)},
        ["y"],
        {"w": weight},
        element_type=TensorProto.FLOAT16,
    )
    graph = Graph.from_model(model)
    run_passes(graph, ["widen_float16"])
    assert isinstance(graph.tensor("w")._values, LazyValues)
    assert graph.values("w").dtype == np.float32


@pytest.mark.parametrize("name", ["widen_bfloat16", "widen_float16"])
def test_a_float32_model_is_not_touched(name: str) -> None:
    model = build_model(linear_nodes(), {"x": (2, 8)}, ["y"], {"w": W, "b": np.ones(4, np.float32)})
    _, report = assert_pass_keeps_outputs(model, name, {"x": X})
    assert report.changed == ()


def test_a_sequence_at_the_border_declines_the_model() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("SequenceConstruct", ["r", "x"], ["y"])]
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT16, (2, 8)))
    model = half_model(nodes[:1] + [helper.make_node("Neg", ["r"], ["y"])], {})
    model.graph.node[1].CopyFrom(nodes[1])
    model.graph.output[0].CopyFrom(helper.make_value_info("y", sequence))
    graph = Graph.from_model(model)
    report = run_passes(graph, ["widen_float16"])[0]
    assert report.changed == ()
    assert report.declined == ("the model: 'y' is a sequence or optional of float16, which no Cast converts",)


def test_sequences_inside_change_their_type() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("SequenceAt", ["s", "first"], ["e"]),
        helper.make_node("Relu", ["e"], ["y"]),
    ]
    model = half_model(nodes, {"first": np.int64(0)})
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT16, (2, 8)))
    model.graph.value_info.append(helper.make_value_info("s", sequence))
    graph, _ = assert_pass_keeps_outputs(model, "widen_float16", {"x": X.astype(HALF)}, rtol=1e-2)
    assert graph.tensor("s").info.type.sequence_type.elem_type.tensor_type.elem_type == TensorProto.FLOAT
