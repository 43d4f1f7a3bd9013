"""A recognised HardSwish becomes the operator of opset 14 with the same results, in all ways it is written."""

from __future__ import annotations

import pytest

from onnxq.graph import Graph
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs
from tests.passes.test_recognize_activations import HARDSWISH, X, model_of


@pytest.mark.parametrize("steps", HARDSWISH)
def test_the_operator_computes_the_same(steps: tuple[str, ...]) -> None:
    model = model_of(*steps)
    assert_pass_keeps_outputs(model, "hardswish_as_operator", {"x": X})
    graph = Graph.from_model(model)
    graph.infer_shapes()
    run_passes(graph, ["hardswish_as_operator"])
    assert len(graph.nodes("HardSwish")) == 1
    assert graph.opset >= 14
    assert not graph.units.all()
