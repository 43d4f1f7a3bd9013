"""Local functions: limits of what they may become, recursion, and functions of other opsets than the model's."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq.errors import ModelError
from onnxq.graph import Graph
from tests.graph.models import model, node, run, sample


def function(name: str, nodes: list[onnx.NodeProto], opset: int = 17) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    return helper.make_function("mine", name, ["a"], ["b"], nodes, imports)


def calling(name: str, *functions: onnx.FunctionProto, opset: int = 17) -> onnx.ModelProto:
    return model([node(name, "x", "y", domain="mine")], domains={"mine": 1}, functions=functions, opset=opset)


def levels(depth: int, calls: int, opset: int = 17) -> list[onnx.FunctionProto]:
    """Functions of which each calls the one before it, several times in a row."""
    found = [function("f0", [node("Relu", "a", "b")], opset)]
    for level in range(1, depth):
        names = ["a", *(f"m{number}" for number in range(1, calls)), "b"]
        pairs = pairwise(names)
        found.append(function(f"f{level}", [node(f"f{level - 1}", a, b, domain="mine") for a, b in pairs], opset))
    return found


@pytest.mark.parametrize("opset", [13, 17, 18])
def test_functions_that_double_with_every_level_are_counted_before_they_are_followed(opset: int) -> None:
    """Also by shape inference, which functions of another opset than the model's need."""
    with pytest.raises(ModelError, match=r"would become 549,755,813,888 nodes .* follows 200,000 at most"):
        Graph.from_model(calling("f39", *levels(40, calls=2, opset=opset)))


def test_functions_within_the_limit_are_inlined() -> None:
    assert len(Graph.from_model(calling("f9", *levels(10, calls=2))).nodes()) == 512


def test_a_long_chain_of_functions_is_refused() -> None:
    with pytest.raises(ModelError, match="1,000 levels deep"):
        Graph.from_model(calling("f999", *levels(1000, calls=1)))


@pytest.mark.parametrize("opset", [17, 18])
def test_functions_do_not_call_themselves(opset: int) -> None:
    one = function("one", [node("two", "a", "b", domain="mine")], opset)
    two = function("two", [node("one", "a", "b", domain="mine")], opset)
    with pytest.raises(ModelError, match="call themselves: one -> two -> one"):
        Graph.from_model(calling("one", one, two))


def test_a_function_is_defined_once() -> None:
    with pytest.raises(ModelError, match="'f0' of domain 'mine' twice"):
        Graph.from_model(calling("f0", *levels(1, 1), *levels(1, 1)))


@pytest.mark.parametrize(
    ("inside", "around", "nodes"),
    [
        (17, 13, [node("Relu", "a", "b")]),
        (18, 17, [node("Mish", "a", "b")]),
        (20, 17, [node("Gelu", "a", "b")]),
        (13, 11, [node("Softmax", "a", "b")]),
        (11, 17, [node("Softmax", "a", "b", axis=0)]),
        (11, 13, [node("Unsqueeze", "a", "u", axes=[0]), node("Squeeze", "u", "b", axes=[0])]),
        (13, 13, [node("Relu", "a", "b")]),
    ],
)
def test_a_function_keeps_its_meaning_in_a_model_of_another_opset(
    inside: int, around: int, nodes: list[onnx.NodeProto]
) -> None:
    source = calling("f", function("f", nodes, inside), opset=around)
    alone = model(
        [onnx.NodeProto.FromString(item.SerializeToString().replace(b"\n\x01a", b"\n\x01x")) for item in nodes],
        opset=inside,
    )
    alone.graph.node[-1].output[0] = "y"
    graph = Graph.from_model(source)
    assert graph.opset == max(inside, around)
    feeds = {"x": sample(2, 3)}
    np.testing.assert_array_equal(run(graph.to_model(given_names=True), feeds)[0], run(alone, feeds)[0])


def test_the_graph_around_a_newer_function_is_raised_with_its_meaning() -> None:
    """Softmax of opset 11 runs over all axes from its own on."""
    around = [node("Softmax", "x", "s", axis=0), node("f", "s", "y", domain="mine")]
    source = model(around, domains={"mine": 1}, functions=[function("f", [node("HardSwish", "a", "b")], 14)], opset=11)
    graph = Graph.from_model(source)
    x = sample(2, 3)
    softmax = np.exp(x) / np.exp(x).sum()
    expected = softmax * np.clip(softmax / 6 + 0.5, 0, 1)
    np.testing.assert_allclose(run(graph.to_model(given_names=True), {"x": x})[0], expected, rtol=1e-5)
