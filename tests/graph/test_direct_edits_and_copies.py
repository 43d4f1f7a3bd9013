"""Edits made on graphsurgeon's own graph are taken over, and copies are independent."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto

from onnxq.errors import ModelError
from onnxq.graph import Graph
from tests.graph.models import chain, checked, if_model, model, node, run, sample

X = {"x": sample(2, 3)}
BOOL = TensorProto.BOOL


# ---- edits through graphsurgeon --------------------------------------------------------------------------------------


def test_direct_edits_of_the_graphsurgeon_graph_are_taken_over() -> None:
    graph = Graph.from_model(chain("Relu"))
    weight = gs.Constant("weight", sample(3, 3, seed=3))
    result = gs.Variable("result", np.float32, [2, 3])
    graph.gs.nodes.append(gs.Node("MatMul", "", inputs=[graph.tensor("y"), weight], outputs=[result]))
    graph.gs.nodes.append(
        gs.Node(
            "Clip",
            "bound",
            inputs=[result, gs.Variable.empty(), gs.Constant("top", np.array(1, np.float32))],
            outputs=[gs.Variable("z", np.float32, [2, 3])],
        )
    )
    graph.gs.outputs = [graph.gs.nodes[-1].outputs[0]]
    graph.refresh()
    assert graph.node("MatMul").inputs[1] is weight
    assert graph.is_constant("weight")
    written = checked(graph)
    expected = np.minimum(np.maximum(X["x"], 0) @ sample(3, 3, seed=3), 1)
    np.testing.assert_allclose(run(written, X)[0], expected, rtol=1e-5)
    assert graph.copy().to_model() == written


def test_graphsurgeon_s_own_cleanup_and_layer_calls_work() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y"), node("Neg", "x", "dead")]))
    graph.gs.cleanup()
    (extra,) = graph.gs.layer(op="Abs", name="extra", inputs=[graph.tensor("y")], outputs=["z"])
    extra.dtype = np.float32
    graph.gs.outputs.append(extra)
    graph.refresh()
    assert [n.op for n in graph.nodes()] == ["Relu", "Abs"]
    assert [o.name for o in graph.to_model().graph.output] == ["y", extra.name]


def test_two_tensors_of_one_name_are_refused() -> None:
    graph = Graph.from_model(chain("Relu"))
    graph.gs.nodes.append(gs.Node("Neg", "n", inputs=[graph.tensor("x")], outputs=[gs.Variable("y")]))
    with pytest.raises(ModelError, match="two different tensors are called 'y'"):
        graph.refresh()


def test_export_types_of_graphsurgeon_are_honoured() -> None:
    graph = Graph.from_model(chain("Relu"))
    weight = gs.Constant("w", sample(2, 3), export_dtype=TensorProto.BFLOAT16)
    graph.gs.nodes.append(gs.Node("Neg", "n", inputs=[weight], outputs=[gs.Variable("z")]))
    graph.refresh()
    assert graph.to_model().graph.initializer[0].data_type == TensorProto.BFLOAT16


# ---- copy ------------------------------------------------------------------------------------------------------------


def test_a_copy_is_independent() -> None:
    source = if_model()
    graph = Graph.from_model(source)
    copy = graph.copy()
    copy.insert_after("r", "Neg")
    copy.node("choose").attrs["extra"] = 1
    copy.tensor("w").values = np.zeros((2, 3), np.float32)
    copy.rename("a", "elsewhere")
    copy.header.producer_name = "other"
    copy.scopes()[0].metadata["k"] = "v"
    copy.units.add("kind", ("choose",))
    copy.gs.outputs.pop()
    assert graph.to_model() == source
    assert graph.units.of("choose") is None
    graph.insert_after("x", "Identity")
    assert copy.has_tensor("r_Neg")
    assert not copy.has_tensor("x_Identity")


def test_a_copy_shares_values_and_gives_out_the_same_fresh_names() -> None:
    graph = Graph.from_model(if_model())
    copy = graph.copy()
    assert copy.tensor("w")._values is graph.tensor("w")._values
    assert copy.tensor("w").scope is copy.scopes()[2]
    assert graph.fresh("x") == copy.fresh("x") == "x_1"


def test_units_dissolve_with_their_nodes_only() -> None:
    graph = Graph.from_model(chain("Relu", "Neg", "Abs"))
    assert graph.units.add("pair", ("Relu0", "Neg1"))
    assert not graph.units.add("other", ("Neg1", "Abs2"))
    assert graph.units.of("Neg1").last == "Neg1"
    copy = graph.copy()
    graph.replace(graph.node("Neg1"), "Exp", ["t1"])
    assert graph.units.all() == []
    assert len(copy.units.all()) == 1
