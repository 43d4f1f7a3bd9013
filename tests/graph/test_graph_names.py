"""Names: fresh ones never collide, twins are told apart in memory, and the file keeps what it had."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from onnxq.errors import ModelError
from onnxq.graph import Graph, Names, Origins
from tests.graph.models import body, chain, model, node, same_results, sample, value


def test_fresh_names_avoid_everything_in_the_file_even_what_comes_later_or_deeper() -> None:
    inner = body([node("Relu", "x", "x_QuantizeLinear_2", name="x_QuantizeLinear_3")], [value("x_QuantizeLinear_2")])
    other = body([node("Neg", "x", "e")], [value("e")])
    nodes = [
        node("Relu", "x", "x_QuantizeLinear"),
        node("Add", "x_QuantizeLinear x_QuantizeLinear_1", "t"),
        node("If", "k", "u", then_branch=inner, else_branch=other),
        node("Add", "t u", "y"),
    ]
    constants = {"x_QuantizeLinear_1": sample(2, 3)}
    source = model(nodes, [value("x"), value("k", (), TensorProto.BOOL)], constants=constants)
    graph = Graph.from_model(source)
    given = [graph.fresh("x_QuantizeLinear") for _ in range(3)]
    assert given == ["x_QuantizeLinear_4", "x_QuantizeLinear_5", "x_QuantizeLinear_6"]
    inserted = graph.insert_after("x", "Identity", name="x_QuantizeLinear")
    assert inserted.name == "x_QuantizeLinear_7"
    feeds = {"x": sample(2, 3), "k": np.array(True)}
    same_results(source, graph.to_model(), feeds)


def test_a_name_is_given_out_once_even_after_its_owner_left() -> None:
    graph = Graph.from_model(chain("Relu", "Neg"))
    first = graph.insert_after("t1", "Identity")
    names = (first.name, first.outputs[0].name)
    graph.redirect(first.outputs[0], "t1")
    graph.remove(first)
    second = graph.insert_after("t1", "Identity")
    assert not {second.name, second.outputs[0].name} & set(names)


def test_an_empty_hint_still_gives_a_name() -> None:
    assert Names().fresh("") != ""


def test_names_added_through_graphsurgeon_are_respected_after_refresh() -> None:
    import onnx_graphsurgeon as gs

    graph = Graph.from_model(chain("Relu"))
    out = graph.gs.outputs[0]
    middle = gs.Variable("q_1", np.float32, [2, 3])
    graph.gs.nodes.append(gs.Node("Neg", "twin", inputs=[graph.tensor("x")], outputs=[middle]))
    graph.gs.nodes.append(gs.Node("Abs", "twin", inputs=[middle], outputs=[gs.Variable("q")]))
    graph.refresh()
    assert graph.fresh("q") == "q_2"
    assert {n.name for n in graph.nodes()} == {"Relu0", "twin", "twin_1"}
    assert out is graph.tensor("y")


def nameless() -> onnx.ModelProto:
    nodes = [node("Relu", "x", "a"), node("Relu", "a", "b"), node("Neg", "b", "c", name="twin")]
    return model([*nodes, node("Neg", "c", "d", name="twin"), node("Abs", "d", "y", name="Relu_a")])


def test_nameless_and_twin_nodes_are_unique_in_memory_and_unchanged_in_the_file() -> None:
    source = nameless()
    graph = Graph.from_model(source)
    names = [n.name for n in graph.nodes()]
    assert len(set(names)) == 5
    assert all(names)
    assert names[2] == "twin"
    assert names[4] == "Relu_a"  # a made-up name must not take one that is in the file
    assert graph.to_model() == source
    assert graph.copy().to_model() == source


def test_given_names_are_written_on_demand() -> None:
    graph = Graph.from_model(nameless())
    names = [n.name for n in graph.nodes()]
    graph.keep_given_names()
    assert [n.name for n in graph.to_model().graph.node] == names


def test_unknown_names_are_errors_with_the_nearest_ones() -> None:
    graph = Graph.from_model(chain("Relu", "Neg"))
    with pytest.raises(ModelError, match=r"no tensor called 't11'.*'t1'"):
        graph.tensor("t11")
    with pytest.raises(ModelError, match=r"no node called 'Relu9'.*'Relu0'"):
        graph.node("Relu9")
    assert graph.has_tensor("t1")
    assert not graph.has_tensor("t2")
    assert graph.has_node("Neg1")
    assert not graph.has_node("t1")


def test_origins_follow_renames_back_and_forth() -> None:
    origins = Origins()
    origins.tensor_became("a", "b")
    origins.tensor_became("b", "c")
    assert origins.current_tensor("a") == "c"
    origins.tensor_became("c", "a")
    assert [origins.current_tensor(name) for name in "abc"] == ["a", "a", "a"]
    origins.node_became("bn", "conv")
    origins.node_became("conv", "fused")
    assert origins.current_node("bn") == "fused"


def test_renaming_is_recorded_and_reaches_the_file() -> None:
    graph = Graph.from_model(chain("Relu", "Neg"))
    assert graph.rename("t1", "middle") == "middle"
    assert graph.origins.current_tensor("t1") == "middle"
    assert graph.rename("middle", "x") == "x_1"
    assert graph.rename("x_1", "x_1") == "x_1"
    assert graph.rename("y", "answer") == "answer"
    written = graph.to_model()
    assert [list(n.output) for n in written.graph.node] == [["x_1"], ["answer"]]
    assert [o.name for o in written.graph.output] == ["answer"]
    onnx.checker.check_model(written, full_check=True)
