"""A tensor with many readers, and a node with many inputs, are looked at in time that grows with their number alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_graphsurgeon.util.misc import SynchronizedList

from onnxq.emit.qdq import to_qdq
from onnxq.emit.simulate import simulate
from onnxq.graph import Graph
from onnxq.ptq.search import evaluator
from onnxq.ptq.search.evaluator import WIDE
from onnxq.runtime.session import float_session
from onnxq.session.prepare import make_plan, prepare
from onnxq.session.session import open_session


def many_readers(count: int) -> onnx.ModelProto:
    """One tensor that `count` layers read, whose results one Concat joins."""
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, 0.3, (4, 4)).astype(np.float32) for name in ["w", "last_w"]}
    weights |= {f"w{i}": rng.normal(0, 0.3, (4, 4)).astype(np.float32) for i in range(count)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="first")]
    nodes += [helper.make_node("MatMul", ["h", f"w{i}"], [f"y{i}"], name=f"n{i}") for i in range(count)]
    nodes += [helper.make_node("Concat", [f"y{i}" for i in range(count)], ["cat"], name="join", axis=0)]
    nodes += [helper.make_node("MatMul", ["cat", "last_w"], ["y"], name="last")]
    graph = helper.make_graph(
        nodes,
        "many",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2 * count, 4])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Counted(SynchronizedList):  # type: ignore[misc]
    """The inputs of a node, or the readers of a tensor, counting how many of them are looked at one by one."""

    looked_at = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            Counted.looked_at += 1
            yield item


def looked_at(count: int, backend: str) -> int:
    """Steps over the inputs of the Concat and the readers of the shared tensor while quantizers are placed."""
    prepared = prepare(many_readers(count), backend)
    prepared.graph.node("join").inputs.__class__ = Counted
    prepared.graph.tensor("h").outputs.__class__ = Counted
    Counted.looked_at = 0
    make_plan(prepared)
    return Counted.looked_at


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime", "qnn"])
def test_twice_the_readers_are_twice_the_steps_of_placement(backend: str) -> None:
    few, many = (looked_at(count, backend) for count in (100, 200))
    assert few >= 200
    assert many < 2.5 * few


def test_readers_are_the_same_while_nothing_changes_and_after_an_edit() -> None:
    graph = Graph.from_model(many_readers(5))
    expected = {name: graph.consumers(name) for name in graph.tensor_names()}
    outputs = {name: graph.is_output(name) for name in graph.tensor_names()}
    with graph.unchanging(), graph.unchanging():
        assert {name: graph.consumers(name) for name in graph.tensor_names()} == expected
        assert {name: graph.is_output(name) for name in graph.tensor_names()} == outputs
        graph.redirect("y1", "y0")
        assert [use.node.name for use in graph.consumers("y0")] == ["join", "join"]
        assert graph.consumers("y1") == []


@pytest.mark.parametrize(("count", "optimize"), [(20, "all"), (WIDE + 1, "none")])
def test_models_with_very_many_readers_are_evaluated_without_onnxruntimes_optimizer(
    count: int, optimize: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(graph: Graph, extra_outputs: Any = (), *, optimize: Any, **more: Any) -> Any:
        asked.append(optimize)
        return float_session(graph, extra_outputs, optimize=optimize, **more)

    monkeypatch.setattr(evaluator, "float_session", noted)
    sample = {"x": np.ones((2, 4), np.float32)}
    prepared = prepare(many_readers(count), "onnxruntime")
    evaluator.Evaluator(prepared.graph, prepared.backend, [sample]).of_float()
    assert asked == [optimize]


def written_steps(count: int, write: Any) -> int:
    """Steps over the inputs of the Concat and the readers of the shared tensor while a quantized model is made."""
    found = open_session(many_readers(count), backend="qnn", data=[{"x": np.ones((2, 4), np.float32)}]).calibrated()
    graph, copy = found.state.graph, found.state.graph.copy()
    copy.node("join").inputs.__class__ = Counted
    copy.tensor("h").outputs.__class__ = Counted
    graph.copy = lambda: copy  # type: ignore[method-assign]
    Counted.looked_at = 0
    write(graph, found.state.plan, found.state.qparams, found.session.prepared.backend)
    return Counted.looked_at


@pytest.mark.parametrize("write", [simulate, to_qdq])
def test_twice_the_readers_are_twice_the_steps_of_writing(write: Any) -> None:
    few, many = (written_steps(count, write) for count in (30, 60))
    assert few >= 30
    assert many < 2.5 * few
