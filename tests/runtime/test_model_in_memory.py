"""Large weights reach onnxruntime where they are in memory."""

from __future__ import annotations

import gc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.runtime.session import ModelInMemory, float_model, float_session

WIDTH = 64


def network() -> onnx.ModelProto:
    """Weights as an initializer, as an attribute, inside a body and as an initializer that is an input too."""
    random = np.random.default_rng(0)

    def weight(name: str) -> TensorProto:
        return numpy_helper.from_array(
            random.normal(size=(WIDTH, 5 * WIDTH)).astype(np.float32)[:, :WIDTH].copy(), name
        )

    branches = {
        f"{kind}_branch": helper.make_graph(
            [helper.make_node("MatMul", ["b", f"{kind}_w"], [f"{kind}_y"])],
            kind,
            [],
            [helper.make_tensor_value_info(f"{kind}_y", TensorProto.FLOAT, None)],
            [weight(f"{kind}_w")],
        )
        for kind in ("then", "else")
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        # An attribute's tensor may have the name of an initializer.
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(random.normal(size=(1, 2**15)), "w")),
        helper.make_node("ReduceMax", ["c"], ["d"], keepdims=0),
        helper.make_node("Cast", ["d"], ["e"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["a", "e"], ["b"]),
        helper.make_node("If", ["flag"], ["f"], **branches),
        helper.make_node("MatMul", ["f", "given"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "weights",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
            helper.make_tensor_value_info("given", TensorProto.FLOAT, [WIDTH, WIDTH]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])],
        [weight("w"), weight("given")],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def feed(flag: bool) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=(3, WIDTH)).astype(np.float32), "flag": np.array(flag)}


def test_only_plain_initializers_of_the_main_graph_are_apart() -> None:
    with float_model(Graph.from_model(network())) as model:
        assert isinstance(model, ModelInMemory)
        assert list(model.weights) == ["w"]
        held = onnx.load_from_string(model.data)
    apart = [tensor.name for tensor in held.graph.initializer if tensor.data_location == TensorProto.EXTERNAL]
    assert apart == ["w"]


@pytest.mark.parametrize("flag", [False, True])
def test_the_bits_are_those_of_a_session_from_a_file(flag: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_model(network())
    found = float_session(graph, threads=1).run(None, feed(flag))
    monkeypatch.setattr("onnxq.runtime.session.MOST_IN_MEMORY", 0)
    (expected,) = float_session(graph, threads=1).run(None, feed(flag))
    np.testing.assert_array_equal(found[0], expected)


def test_the_weights_live_as_long_as_the_session() -> None:
    session = float_session(Graph.from_model(network()), threads=1)
    (before,) = session.run(None, feed(True))
    gc.collect()
    overwritten = [np.full((WIDTH, WIDTH), np.nan, np.float32) for _ in range(64)]
    (after,) = session.run(None, feed(True))
    assert len(overwritten) == 64
    np.testing.assert_array_equal(before, after)


def test_a_weight_that_nobody_reads_does_not_keep_a_model_from_loading() -> None:
    model = network()
    model.graph.initializer.append(numpy_helper.from_array(np.ones((WIDTH, WIDTH), np.float32), "unread"))
    found = float_session(Graph.from_model(model), threads=1).run(None, feed(True))
    expected = float_session(Graph.from_model(network()), threads=1).run(None, feed(True))
    np.testing.assert_array_equal(found[0], expected[0])
