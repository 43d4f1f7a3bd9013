"""A recognised Gelu becomes the operator of opset 20 with the same results; what has no such operator is left."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from onnxq.graph import Graph
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model
from tests.passes.test_recognize_activations import ERF_GELU, TANH_GELU, X, model_of


@pytest.mark.parametrize(("steps", "approximate"), [(ERF_GELU[0], "none"), (TANH_GELU[0], "tanh")])
def test_the_operator_computes_the_same(steps: tuple[str, ...], approximate: str) -> None:
    model = model_of(*steps)
    assert_pass_keeps_outputs(model, "gelu_as_operator", {"x": X})
    graph = Graph.from_model(model)
    graph.infer_shapes()
    run_passes(graph, ["gelu_as_operator"])
    (gelu,) = graph.nodes("Gelu")
    assert gelu.attrs.get("approximate", "none") == approximate
    assert graph.opset >= 20
    assert not graph.units.all()
    assert graph.origins.current_node("make_e" if approximate == "none" else gelu.name) == gelu.name


def test_a_model_without_gelu_keeps_its_opset() -> None:
    model = build_model([helper.make_node("Relu", ["x"], ["y"], name="r")], {"x": (2, 6)}, ("y",), {}, opset=17)
    graph = Graph.from_model(model)
    graph.infer_shapes()
    (report,) = run_passes(graph, ["gelu_as_operator"])
    assert not report.changed
    assert graph.opset == 17


def test_double_precision_is_left_as_it_is() -> None:
    graph = Graph.from_model(model_of(*ERF_GELU[0], dtype=np.float64))
    graph.infer_shapes()
    before = graph.opset
    reports = run_passes(graph, ["recognize_gelu", "gelu_as_operator"])
    assert "float64" in reports[1].declined[0]
    assert not graph.nodes("Gelu")
    assert graph.units.all()
    assert graph.opset == before
