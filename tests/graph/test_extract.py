"""Parts of a graph: they compute what the whole computes, and changing them leaves the whole as it is."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.graph import Graph
from onnxq.graph.extract import front_of, part_of
from onnxq.graph.nodes import bodies
from onnxq.graph.sort import captured
from onnxq.runtime.session import float_session, run_session
from tests.golden_graphs import GOLDEN


def halves(graph: Graph, at: int) -> tuple[Graph, Graph]:
    nodes = [node for node in graph.gs.nodes if node.op != "Constant"]
    first, second = nodes[:at], nodes[at:]
    made = {t.name for node in first for t in node.outputs}
    given = set(graph.input_names)
    read = {t.name: None for n in second for t in (*n.inputs, *(captured(n) if bodies(n) else ())) if t.name}
    border = [name for name in read if name in made]
    wanted = [*border, *(name for name in graph.output_names if name in made)]
    both = [*border, *(name for name in read if name in given)]
    return part_of(graph, first, graph.input_names, wanted), part_of(graph, second, both, graph.output_names)


@pytest.mark.parametrize("name", GOLDEN)
def test_two_parts_one_after_the_other_compute_what_the_whole_computes(name: str) -> None:
    made = GOLDEN[name]()
    graph = Graph.from_model(made.model)
    graph.sort()
    graph.infer_shapes()
    feed = made.samples[0]
    wanted = run_session(float_session(graph), graph.output_names, feed, "the whole")
    first, second = halves(graph, len(graph.gs.nodes) // 2)
    found = dict(zip(first.output_names, run_session(float_session(first), None, feed, "the first part"), strict=True))
    feed = {name: found[name] if name in found else feed[name] for name in second.input_names}
    for mine, its in zip(run_session(float_session(second), None, feed, "the second part"), wanted, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-4, atol=1e-5)


def test_new_values_in_a_part_leave_the_graph_as_it_is() -> None:
    graph = Graph.from_model(GOLDEN["residual"]().model)
    graph.sort()
    node = next(node for node in graph.gs.nodes if node.op == "Conv")
    weight = node.inputs[1].name
    before = graph.values(weight).copy()
    part = part_of(graph, [node], [node.inputs[0].name], [node.outputs[0].name])
    part.set_values(weight, before * 2)
    np.testing.assert_array_equal(graph.values(weight), before)
    assert graph.producer(node.outputs[0].name) is node
    assert [n.name for n in part.nodes()] == [node.name]
    assert set(part.tensor_names()) == {t.name for t in (*node.inputs, *node.outputs)}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_front_of_a_graph_computes_the_tensors_asked_for_and_no_more(name: str) -> None:
    made = GOLDEN[name]()
    graph = Graph.from_model(made.model)
    graph.sort()
    graph.infer_shapes()
    feed = made.samples[0]
    nodes = [node for node in graph.gs.nodes if node.op != "Constant"]
    middle = nodes[len(nodes) // 2].outputs[0].name
    front = front_of(graph, [graph.input_names[0], middle])
    assert front.input_names == graph.input_names
    assert front.output_names == [middle]
    assert len(front.gs.nodes) < len(graph.gs.nodes)
    (wanted,) = run_session(float_session(graph, [middle]), [middle], feed, "the whole")
    (found,) = run_session(float_session(front), None, feed, "the front")
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_the_front_up_to_an_input_has_no_nodes() -> None:
    graph = Graph.from_model(GOLDEN["residual"]().model)
    graph.sort()
    front = front_of(graph, graph.input_names)
    assert front.gs.nodes == []
    assert front.output_names == []
