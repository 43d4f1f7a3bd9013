"""The factor of attention scores moves to the queries, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.graph import Graph
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs
from tests.zoo_graphs.net import Net


def attention(op: str = "Div", *, first: bool = False, mask: bool = True, read_twice: bool = False) -> Net:
    net = Net("scores")
    q, k = net.input("q", [1, 2, 5, 8]), net.input("k", [1, 2, 8, 5])
    factor = net.floats(np.sqrt(8.0))
    scores = net.node("MatMul", q, k, name="product")
    inputs = (factor, scores) if first else (scores, factor)
    scaled = net.node(op, *inputs, name="scale")
    if mask:
        scaled = net.node("Add", scaled, net.floats(np.triu(np.full((5, 5), -1e4), 1)), name="mask")
    net.output(net.node("Softmax", scaled, axis=-1, output="y"), [1, 2, 5, 5])
    if read_twice:
        net.output(net.node("Neg", scores, output="z"), [1, 2, 5, 5])
    return net


@pytest.mark.parametrize("net", [attention(), attention("Mul"), attention("Mul", first=True), attention(mask=False)])
def test_queries_are_scaled_and_outputs_are_kept(net: Net) -> None:
    rng = np.random.default_rng(0)
    feed = {"q": rng.normal(size=(1, 2, 5, 8)), "k": rng.normal(size=(1, 2, 8, 5))}
    feed = {name: values.astype(np.float32) for name, values in feed.items()}
    assert_pass_keeps_outputs(net.model(), "scale_queries", feed)
    graph = Graph.from_model(net.model())
    (report,) = run_passes(graph, ["scale_queries"])
    assert len(report.changed) == 1
    product = graph.node("product")
    assert graph.producer(product.inputs[0]).op in ("Mul", "Div")
    assert {use.node.op for use in graph.consumers(product.outputs[0])} <= {"Add", "Softmax"}


@pytest.mark.parametrize("net", [attention("Div", first=True), attention(read_twice=True), attention("Add")])
def test_other_products_stay(net: Net) -> None:
    graph = Graph.from_model(net.model())
    (report,) = run_passes(graph, ["scale_queries"])
    assert not report.changed
