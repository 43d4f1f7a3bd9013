"""A user's pattern becomes units of the kind that the user names."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq.errors import ConfigError
from onnxq.graph import Any, Const, Graph, Op
from onnxq.passes import fuse_pattern, run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def mish_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Softplus", ["x"], ["p"], name="softplus"),
        helper.make_node("Tanh", ["p"], ["t"], name="tanh"),
        helper.make_node("Mul", ["x", "t"], ["y"], name="mul"),
    ]
    return build_model(nodes, {"x": (2, 3)}, ["y"])


def test_a_chain_of_operators_becomes_a_unit() -> None:
    step = fuse_pattern("Mish", "Softplus -> Tanh -> Mul")
    graph, report = assert_pass_keeps_outputs(mish_model(), step, {"x": X})
    assert [(unit.kind, unit.nodes) for unit in graph.units.all()] == [("Mish", ("softplus", "tanh", "mul"))]
    assert report.name == "fuse_pattern(Mish)"
    assert report.changed == ("node 'mul' (Mul): ends a Mish of 3 nodes, beginning with 'softplus'",)


def test_a_tree_with_numbers_becomes_a_unit() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "a"], ["s"], name="in"),
        helper.make_node("Tanh", ["s"], ["t"], name="tanh"),
        helper.make_node("Mul", ["b", "t"], ["y"], name="out"),
    ]
    model = build_model(nodes, {"x": (2, 3)}, ["y"], {"a": np.float32(0.6667), "b": np.float32(1.7159)})
    pattern = Op("Mul", Op("Tanh", Op("Mul", Any("x"), Const(0.6667))), Const(1.7159))
    graph, _ = assert_pass_keeps_outputs(model, fuse_pattern("ScaledTanh", pattern), {"x": X})
    assert [unit.nodes for unit in graph.units.all()] == [("in", "tanh", "out")]
    other = Op("Mul", Op("Tanh", Op("Mul", Any("x"), Const(0.5))), Const(1.7159))
    assert run_passes(Graph.from_model(model), [fuse_pattern("ScaledTanh", other)])[0].changed == ()


def test_nodes_of_another_unit_are_left_there() -> None:
    graph = Graph.from_model(mish_model())
    reports = run_passes(
        graph, [fuse_pattern("Mine", "Softplus -> Tanh"), fuse_pattern("Mish", "Softplus -> Tanh -> Mul")]
    )
    assert [unit.kind for unit in graph.units.all()] == ["Mine"]
    assert reports[1].declined == ("node 'mul' (Mul): looks like a Mish, but shares nodes with a Mine",)


def test_a_pattern_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ConfigError, match="joined by '->'"):
        fuse_pattern("Mish", "Softplus => Tanh")
