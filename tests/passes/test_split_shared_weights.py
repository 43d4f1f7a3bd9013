"""split_shared_weights: a constant serves one purpose, and copies share their memory."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from onnxq.passes.edits import held_values
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

RNG = np.random.default_rng(9)


def random(*shape: int) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape)).astype(np.float32)


def read(graph, node: str, port: int = 1) -> str:
    return graph.node(node).inputs[port].name


def test_gemm_in_both_directions():
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"], name="down"),
        helper.make_node("Gemm", ["h", "w"], ["y"], name="up", transB=1),
        helper.make_node("MatMul", ["x", "w"], ["z"], name="again"),
    ]
    model = build_model(nodes, {"x": [3, 4]}, ["y", "z"], {"w": random(4, 5)})
    graph, report = assert_pass_keeps_outputs(model, "split_shared_weights", {"x": random(3, 4)})
    assert [read(graph, name) for name in ("down", "up", "again")] == ["w", "w_1", "w"]
    assert graph.origins.copies == {"w_1": "w"}
    assert report.changed == ("node 'up' (Gemm): reads 'w_1', a copy of the shared 'w' for 'up'",)
    assert held_values(graph, graph.tensor("w")) is held_values(graph, graph.tensor("w_1"))


def test_a_tied_embedding_leaves_the_name_to_the_layer():
    nodes = [
        helper.make_node("Gather", ["w", "ids"], ["e"], name="embed"),
        helper.make_node("Add", ["e", "x"], ["s"]),
        helper.make_node("Gemm", ["s", "w"], ["y"], name="head", transB=1),
    ]
    constants = {"w": random(7, 4), "ids": np.array([0, 3, 6])}
    model = build_model(nodes, {"x": [3, 4]}, ["y"], constants)
    graph, _ = assert_pass_keeps_outputs(model, "split_shared_weights", {"x": random(3, 4)})
    assert read(graph, "head") == "w"
    assert read(graph, "embed", 0) == "w_1"


def test_conv_and_conv_transpose_read_the_channels_along_different_axes():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("ConvTranspose", ["c", "w"], ["y"], name="up"),
        helper.make_node("Conv", ["x", "w"], ["z"], name="conv2", pads=[1, 1, 1, 1]),
    ]
    model = build_model(nodes, {"x": [1, 4, 5, 5]}, ["y", "z"], {"w": random(4, 4, 3, 3)})
    graph, _ = assert_pass_keeps_outputs(model, "split_shared_weights", {"x": random(1, 4, 5, 5)})
    assert [read(graph, name) for name in ("conv", "up", "conv2")] == ["w", "w_1", "w"]


def test_layers_with_the_same_axis_keep_sharing():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="one"),
        helper.make_node("MatMul", ["h", "w"], ["y"], name="two"),
    ]
    model = build_model(nodes, {"x": [3, 4]}, ["y"], {"w": random(4, 4)})
    graph, report = assert_pass_keeps_outputs(model, "split_shared_weights", {"x": random(3, 4)})
    assert (report.changed, len(graph.constants())) == ((), 1)


def test_every_layer_gets_its_own_bias():
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="one"),
        helper.make_node("Conv", ["c", "w", "b"], ["d"], name="two"),
        helper.make_node("Conv", ["d", "w", "b"], ["y"], name="three"),
    ]
    model = build_model(nodes, {"x": [1, 4, 5, 5]}, ["y"], {"w": random(4, 4, 1, 1), "b": random(4)})
    graph, _ = assert_pass_keeps_outputs(model, "split_shared_weights", {"x": random(1, 4, 5, 5)})
    assert [read(graph, name, 2) for name in ("one", "two", "three")] == ["b", "b_1", "b_2"]
    assert graph.origins.copies == {"b_1": "b", "b_2": "b"}


def test_a_weight_that_is_also_an_output_stays_the_output():
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], name="gemm")]
    model = build_model(nodes, {"x": [3, 4]}, {"y": [3, 5], "w": [4, 5]}, {"w": random(4, 5)})
    graph, _ = assert_pass_keeps_outputs(model, "split_shared_weights", {"x": random(3, 4)})
    assert read(graph, "gemm") == "w_1"


def test_a_weight_of_the_outer_graph_read_in_a_branch_and_a_constant_node():
    def branch(name: str, trans_b: int):
        node = helper.make_node("Gemm", ["x", "w", "b"], [f"{name}_y"], name=name, transB=trans_b)
        return helper.make_graph(
            [node], name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [3, 4])]
        )

    nodes = [
        helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(random(4))),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["condition"], to=TensorProto.BOOL),
        helper.make_node("If", ["condition"], ["y"], then_branch=branch("t", 0), else_branch=branch("e", 1)),
    ]
    model = build_model(nodes, {"x": [3, 4]}, {"y": [3, 4]}, {"w": random(4, 4)})
    graph, report = assert_pass_keeps_outputs(model, "split_shared_weights", {"x": random(3, 4)})
    assert read(graph, "t") != read(graph, "e")
    assert read(graph, "t", 2) != read(graph, "e", 2)
    assert len(report.changed) == 2
