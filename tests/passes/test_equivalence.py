"""The referee itself: it must notice a pass that changes results, the interface, or something on every run."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from onnxq.graph import Graph
from onnxq.passes import PassResult
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

FEEDS = {"x": np.array([[-1.0, 2.0]], np.float32)}


def relu_model():
    return build_model([helper.make_node("Relu", ["x"], ["y"], name="relu")], {"x": [1, 2]}, {"y": [1, 2]})


def test_a_pass_that_changes_nothing_is_accepted():
    graph, report = assert_pass_keeps_outputs(relu_model(), lambda graph: None, FEEDS)
    assert [node.op for node in graph.nodes()] == ["Relu"]
    assert report.changed == ()


def test_a_changed_result_is_noticed():
    def relu_to_abs(graph: Graph) -> None:
        graph.node("relu").op = "Abs"

    with pytest.raises(AssertionError, match="output 'y'"):
        assert_pass_keeps_outputs(relu_model(), relu_to_abs, FEEDS)


def test_a_renamed_output_is_noticed():
    def rename_output(graph: Graph) -> None:
        graph.rename("y", "z")

    with pytest.raises(AssertionError):
        assert_pass_keeps_outputs(relu_model(), rename_output, FEEDS)


def test_a_pass_that_never_finishes_changing_is_noticed():
    def add_relu(graph: Graph) -> PassResult:
        graph.insert_after("x", "Identity")
        return PassResult(changed=["added one"])

    with pytest.raises(AssertionError):
        assert_pass_keeps_outputs(relu_model(), add_relu, FEEDS)
