"""PRelu in operators that run fast gives the same bits, whatever its slopes are."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.graph import Graph
from onnxq.passes import run_passes
from onnxq.verify.kernels import integer_kernels
from tests.passes.equivalence import build_model, run_model

X = np.random.default_rng(3).normal(0, 2, (2, 4, 5, 5)).astype(np.float32)


def slopes(*values: float) -> np.ndarray:
    return np.array(values, np.float32).reshape(-1, 1, 1)


@pytest.mark.parametrize(
    ("slope", "made"),
    [
        (slopes(0.1, 0.25, -0.3, 1.0), ["Max", "Mul"]),
        (slopes(1.5, 1.0, 2.0, 3.0), ["Min", "Mul"]),
        (slopes(0.1, 1.5, -0.3, 1.0), ["Add", "Max", "Min", "Mul"]),
        (slopes(0.1, 0.0, 0.3, 1.0), ["Add", "Max", "Min", "Mul"]),
        (slopes(0.2, 0.2, 0.2, 0.2), ["LeakyRelu"]),
        (np.float32([0.125]), ["LeakyRelu"]),
        (np.float32([0.1, 0.2, 0.3, 0.4, 0.5]), ["Max", "Mul"]),  # along the last axis
    ],
)
def test_every_form_computes_the_same_bits(slope: np.ndarray, made: list[str]) -> None:
    model = build_model([helper.make_node("PRelu", ["x", "s"], ["y"], name="act")], {"x": X.shape}, ["y"], {"s": slope})
    graph = Graph.from_model(model)
    (report,) = run_passes(graph, ["prelu_as_max"])
    assert len(report.changed) == 1
    assert sorted(node.op for node in graph.nodes()) == made
    assert graph.node("act").outputs[0].name == "y"
    values = X.copy()
    values[:, :, 0, :4] = (0.0, 1e30, -1e30, np.inf)
    found = run_model(graph.to_model(), {"x": values})["y"]
    np.testing.assert_array_equal(found, run_model(model, {"x": values})["y"])
    assert not run_passes(graph, ["prelu_as_max"])[0].changed


def test_slopes_that_are_computed_stay() -> None:
    model = build_model(
        [helper.make_node("PRelu", ["x", "s"], ["y"], name="act")], {"x": X.shape, "s": (4, 1, 1)}, ["y"]
    )
    graph = Graph.from_model(model)
    (report,) = run_passes(graph, ["prelu_as_max"])
    assert [node.op for node in graph.nodes()] == ["PRelu"]
    assert report.declined == ("node 'act' (PRelu): its slopes 's' are computed",)


def test_a_written_file_has_fast_operators_between_integer_convolutions() -> None:
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.normal(0, 0.3, (8, 3 if i == 0 else 8, 3, 3)).astype(np.float32) for i in range(3)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="c0"),
        helper.make_node("PRelu", ["a", "channels"], ["b"], name="p0"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="c1"),
        helper.make_node("PRelu", ["c", "one"], ["d"], name="p1"),
        helper.make_node("Conv", ["d", "w2"], ["y"], name="c2"),
    ]
    constants = {**weights, "channels": rng.uniform(0, 0.5, (8, 1, 1)).astype(np.float32), "one": np.float32([0.25])}
    model = build_model(nodes, {"x": (1, 3, 12, 12)}, ["y"], constants)
    data = [{"x": rng.normal(0, 1, (1, 3, 12, 12)).astype(np.float32)} for _ in range(4)]
    result = onnxq.quantize(model, backend="onnxruntime", data=data, config={"effort": 0, "report": "no"})
    assert result.report["kernels"]["integer"] == {"QLinearConv": 3, "QLinearLeakyRelu": 1}
    floating = set(integer_kernels(result.model).converted.values())
    assert floating == {"Mul", "Max"}
