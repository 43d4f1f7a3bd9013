"""fuse_matmul_add: marks a product and its bias, changes no node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnxq.graph import Graph, Unit
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

RNG = np.random.default_rng(3)


def random(*shape: int) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape)).astype(np.float32)


def linear_model(bias_shape: tuple[int, ...], *extra, outputs=("y",), weight: tuple[int, ...] = (4, 5), first=False):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="mm"),
        helper.make_node("Add", ["b", "m"] if first else ["m", "b"], ["y"], name="add"),
        *extra,
    ]
    return build_model(nodes, {"x": [2, 3, 4]}, list(outputs), {"w": random(*weight), "b": random(*bias_shape)})


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 1, 5)])
def test_marks_product_and_bias(shape, first):
    graph, report = assert_pass_keeps_outputs(
        linear_model(shape, first=first), "fuse_matmul_add", {"x": random(2, 3, 4)}
    )
    assert graph.units.all() == [Unit("MatMulAdd", ("mm", "add"))]
    assert report.changed == ("node 'add' (Add): is one unit with node 'mm' (MatMul)",)


@pytest.mark.parametrize("shape", [(1,), (), (3, 5), (2, 1, 5)])
def test_other_constants_are_no_bias(shape):
    graph, report = assert_pass_keeps_outputs(linear_model(shape), "fuse_matmul_add", {"x": random(2, 3, 4)})
    assert graph.units.all() == []
    assert "is not one value for each of 5 channels" in report.declined[0]


def test_a_product_with_another_reader_is_not_marked():
    model = linear_model((5,), helper.make_node("Relu", ["m"], ["z"], name="relu"), outputs=("y", "z"))
    graph, report = assert_pass_keeps_outputs(model, "fuse_matmul_add", {"x": random(2, 3, 4)})
    assert graph.units.all() == []
    assert "also read by node 'relu'" in report.declined[0]


def test_a_batch_of_matrices_is_not_marked():
    graph, report = assert_pass_keeps_outputs(
        linear_model((5,), weight=(2, 4, 5)), "fuse_matmul_add", {"x": random(2, 3, 4)}
    )
    assert graph.units.all() == []
    assert "weight of node 'mm' (MatMul) is not a constant matrix" in report.declined[0]


def test_nodes_of_another_unit_are_declined():
    graph = Graph.from_model(linear_model((5,)))
    graph.units.add("Mine", ("add",))
    report = run_passes(graph, ["fuse_matmul_add"])[0]
    assert report.declined == ("node 'add' (Add): it or node 'mm' (MatMul) belongs to a Mine already",)


def test_constant_nodes_without_shape_inference():
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(random(4, 5))),
        helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(random(5))),
        helper.make_node("MatMul", ["x", "w"], ["m"], name="mm"),
        helper.make_node("Add", ["m", "b"], ["y"], name="add"),
    ]
    graph = Graph.from_model(build_model(nodes, {"x": [3, 4]}, ["y"]))
    run_passes(graph, ["fuse_matmul_add"])
    assert graph.units.of("mm") == Unit("MatMulAdd", ("mm", "add"))
