"""Results that are taken as they are: a product inside an Add of ppl.nn and STPU, sums of embeddings for TensorRT."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.place import place
from onnxq.session.prepare import prepare
from onnxq.types import QuantPlan
from tests.zoo_graphs.net import Net


def plan_of(net: Net, backend: str) -> QuantPlan:
    prepared = prepare(net.model(), backend)
    return place(prepared.graph, prepared.backend)


def product_and_sum() -> Net:
    net = Net("merge")
    x = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    net.node("Mul", x, net.conv("x", 3, 4), output="product")
    net.output(net.node("Add", "product", x))
    return net


@pytest.mark.parametrize("backend", ["pplcuda", "pplw8a16", "stpu"])
def test_a_product_that_only_an_add_reads_has_no_quantizer(backend: str) -> None:
    assert "product" not in plan_of(product_and_sum(), backend)


@pytest.mark.parametrize("backend", ["pplcuda", "pplw8a16", "stpu"])
def test_a_product_with_another_reader_has_one(backend: str) -> None:
    net = product_and_sum()
    net.output(net.conv("product", 4, 2))
    assert plan_of(net, backend)["product"].edges is None


def test_sums_of_embeddings_stay_float_for_tensorrt_nlp() -> None:
    net = Net("embeddings")
    ids = net.input("ids", [1, 6], np.int64)
    tables = [net.node("Gather", net.weight(20, 8), ids) for _ in range(3)]
    first = net.node("Add", tables[0], tables[1], name="one")
    total = net.node("Add", first, tables[2], name="two", output="sum")
    net.output(net.node("MatMul", total, net.weight(8, 4)))
    plan = plan_of(net, "tensorrt_nlp")
    assert {"one", "two"} <= plan.left_float.keys()
    assert "sum" in plan
