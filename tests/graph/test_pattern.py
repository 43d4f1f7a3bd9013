"""Patterns: where they fit, where they must not, and what a match tells."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from onnxq.errors import ConfigError
from onnxq.graph import Any, Const, Graph, Op, parse_pattern
from tests.graph.models import body, chain, model, node, sample, value


def ops(graph: Graph, pattern: str | Op) -> list[list[str]]:
    return [[n.op for n in match.nodes] for match in graph.find(pattern)]


def test_a_chain_is_found_as_often_as_it_occurs_without_overlaps() -> None:
    graph = Graph.from_model(chain("Relu", "Neg", "Relu", "Neg", "Neg"))
    assert [[n.name for n in match.nodes] for match in graph.find("Relu -> Neg")] == [
        ["Relu0", "Neg1"],
        ["Relu2", "Neg3"],
    ]
    assert len(graph.find("Neg -> Neg")) == 1
    assert len(graph.find("Relu")) == 2
    assert graph.find("Abs") == []


def test_alternatives() -> None:
    graph = Graph.from_model(chain("Relu", "Neg", "Abs", "Exp"))
    assert ops(graph, "Relu|Abs -> Neg | Exp") == [["Relu", "Neg"], ["Abs", "Exp"]]


@pytest.mark.parametrize("inputs", ["r x", "x r"])
def test_a_chain_may_enter_at_any_port(inputs: str) -> None:
    graph = Graph.from_model(model([node("Relu", "x", "r"), node("Sub", inputs, "y")]))
    assert ops(graph, "Relu -> Sub") == [["Relu", "Sub"]]


def test_a_value_read_outside_the_match_prevents_it() -> None:
    nodes = [node("Relu", "x", "r"), node("Neg", "r", "y"), node("Abs", "r", "z")]
    assert Graph.from_model(model(nodes, outputs=[value("y"), value("z")])).find("Relu -> Neg") == []
    assert Graph.from_model(model(nodes[:2], outputs=[value("y"), value("r")])).find("Relu -> Neg") == []
    assert len(Graph.from_model(model(nodes, outputs=[value("y"), value("z")])).find("Relu")) == 1


def test_a_value_read_in_a_body_prevents_a_match_and_matches_stay_in_one_scope() -> None:
    then = body([node("Neg", "r", "a"), node("Abs", "a", "o")], [value("o")])
    other = body([node("Exp", "x", "p")], [value("p")])
    nodes = [node("Relu", "x", "r"), node("If", "k", "y", then_branch=then, else_branch=other)]
    graph = Graph.from_model(model(nodes, [value("x"), value("k", (), TensorProto.BOOL)]))
    assert graph.find("Relu -> Neg") == []
    assert ops(graph, "Neg -> Abs") == [["Neg", "Abs"]]


@pytest.mark.parametrize("order", ["x s", "s x"])
def test_commutative_operators_match_in_either_order(order: str) -> None:
    graph = Graph.from_model(model([node("Sigmoid", "x", "s"), node("Mul", order, "y")]))
    silu = Op("Mul", Any("x"), Op("Sigmoid", Any("x"), name="gate"), name="product")
    (match,) = graph.find(silu)
    assert match["x"] is graph.tensor("x")
    assert match.output is graph.tensor("y")
    assert match.named_nodes["gate"].op == "Sigmoid"
    assert match.nodes[-1] is match.named_nodes["product"]


def test_other_operators_match_in_the_given_order_only() -> None:
    graph = Graph.from_model(model([node("Sigmoid", "x", "s"), node("Sub", "s x", "y")]))
    assert len(graph.find(Op("Sub", Op("Sigmoid", Any("x")), Any("x")))) == 1
    assert graph.find(Op("Sub", Any("x"), Op("Sigmoid", Any("x")))) == []


def test_the_same_name_means_the_same_tensor() -> None:
    graph = Graph.from_model(model([node("Sigmoid", "x", "s"), node("Mul", "z s", "y")], [value("x"), value("z")]))
    assert graph.find(Op("Mul", Any("x"), Op("Sigmoid", Any("x")))) == []
    assert len(graph.find(Op("Mul", Any("a"), Op("Sigmoid", Any("b"))))) == 1


@pytest.mark.parametrize("as_node", [True, False])
def test_constants_by_value(as_node: bool) -> None:
    two = np.array([2.0], np.float32)
    nodes = [node("Constant", "", "c", value_floats=[2.0])] if as_node else []
    source = model([*nodes, node("Mul", "x c", "y")], constants={} if as_node else {"c": two})
    graph = Graph.from_model(source)
    assert len(graph.find(Op("Mul", Any(), Const(2.0, name="factor")))) == 1
    assert len(graph.find(Op("Mul", Any(), Const()))) == 1
    assert graph.find(Op("Mul", Any(), Const(2.1))) == []
    (match,) = graph.find(Op("Mul", Any(), Const(2.1, tolerance=0.1, name="factor")))
    assert match["factor"] is graph.tensor("c")


def test_constants_that_are_no_single_number_have_no_value() -> None:
    constants = {"long": np.full(5000, 2, np.float32), "text": np.array(["2"], object), "none": np.zeros(0, np.float32)}
    constants["mixed"] = np.float32([2, 3])
    nodes = [node("Mul", f"x {name}", f"y_{name}") for name in constants]
    graph = Graph.from_model(
        model(nodes, outputs=[value(f"y_{name}", None) for name in constants], constants=constants)
    )
    assert graph.find(Op("Mul", Any(), Const(2.0))) == []
    assert len(graph.find(Op("Mul", Any(), Const()))) == 4


def test_omitted_inputs_are_no_tensors() -> None:
    source = model([node("Clip", "x _ top", "y")], constants={"top": np.float32(6)})
    graph = Graph.from_model(source)
    assert graph.find(Op("Clip", Any(), Any(), Any())) == []
    assert len(graph.find(Op("Clip", Any()))) == 1
    assert Graph.from_model(model([node("Clip", "x", "y")])).find(Op("Clip", Any(), Const(0.0))) == []


def test_attributes_must_agree() -> None:
    graph = Graph.from_model(model([node("Softmax", "x", "t", axis=1), node("Softmax", "t", "y", axis=0)]))
    assert [m.nodes[0].outputs[0].name for m in graph.find(Op("Softmax", axis=1))] == ["t"]
    assert graph.find(Op("Softmax", axis=2)) == []


def test_operators_of_other_domains_are_spelled_with_theirs() -> None:
    nodes = [node("Conv", "x", "t", domain="my.domain"), node("Relu", "t", "y")]
    graph = Graph.from_model(model(nodes, domains={"my.domain": 1}))
    assert graph.find("Conv -> Relu") == []
    assert ops(graph, "my.domain::Conv -> Relu") == [["Conv", "Relu"]]


def test_only_the_first_output_continues_a_pattern() -> None:
    nodes = [node("Split", "x", "a b", axis=0, num_outputs=2), node("Neg", "b", "y")]
    graph = Graph.from_model(model(nodes, [value("x", (2, 3))], [value("y", (1, 3))], opset=18))
    assert graph.find("Split -> Neg") == []


def test_a_match_can_be_replaced_as_a_whole() -> None:
    source = model(
        [node("Sigmoid", "x", "s"), node("Mul", "x s", "y"), node("Neg", "x", "z")], outputs=[value("y"), value("z")]
    )
    graph = Graph.from_model(source)
    (match,) = graph.find(Op("Mul", Any("x"), Op("Sigmoid", Any("x"))))
    graph.replace(match, "Gelu", [match["x"]], domain="com.microsoft")
    assert [n.op for n in graph.nodes()] == ["Neg", "Gelu"]


@pytest.mark.parametrize("text", ["", "Conv ->", "-> Relu", "Conv Relu", "Conv -> 3 + 4", "Conv || Relu"])
def test_malformed_patterns_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        parse_pattern(text)


def test_a_pattern_must_end_in_an_operator() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y")], constants={"c": sample(2)}))
    with pytest.raises(ConfigError, match="must end in an Op"):
        graph.find(Any("x"))
