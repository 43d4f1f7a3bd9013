"""A simulated model that takes over what the last one had in common with it computes what a new one computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from onnxq.emit.kept_simulation import KeptSimulation
from onnxq.emit.qdq import QdqParts, to_qdq, to_qdq_in_parts
from onnxq.emit.quantized_values import quantized_values
from onnxq.emit.simulate import Simulated, simulate, simulate_in_pairs
from onnxq.graph import Graph
from onnxq.ptq.method import State
from onnxq.ptq.search.candidates import settled
from onnxq.runtime.session import KEEP_PAIRS, float_session
from onnxq.types import QParams
from tests.ptq.calibrated import Ready, digits

STEPS = ("cross_layer_equalization", "range_setting:mse", "weight_scale_search", "bias_correction", "gptq")


def bits(graph: Graph, feeds: list[dict[str, np.ndarray]], config: Mapping[str, str] = KEEP_PAIRS) -> list[np.ndarray]:
    session = float_session(graph, threads=1, config=config)
    return [values for feed in feeds for values in session.run(None, feed)]


def anew(ready: Ready, state: State) -> Graph:
    return simulate(state.graph, state.plan.active, state.qparams, ready.task.backend, pairs=True)[0]


def states(ready: Ready) -> list[State]:
    found = [ready.state]
    for name in STEPS:
        found += [replace(ready, state=found[-1]).improve(name).state]
    return found


@pytest.mark.parametrize(("backend", "weight_bits"), [("onnxruntime", 8), ("tensorrt", 4), ("vitis", 8)])
def test_states_of_a_search_have_the_bits_of_simulate(backend: str, weight_bits: int) -> None:
    ready = digits(backend, weight_bits)
    feeds = list(ready.task.samples)[:2]
    kept = KeptSimulation(ready.task.backend)
    chain = states(ready)
    for state in [*chain, *chain[::-1]]:
        model = kept.of(state.graph, state.plan.active, state.qparams)
        for found, expected in zip(bits(model, feeds), bits(anew(ready, state), feeds), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_nodes_are_written_once_and_only_changed_weights_are_quantized(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = digits("onnxruntime")
    made: list[str] = []

    def written(*given: Any) -> Simulated:
        made.append("model")
        return simulate_in_pairs(*given)

    def changed_values(graph: Graph, constant: Any, *more: Any) -> np.ndarray:
        made.append(constant.name)
        return quantized_values(graph, constant, *more)

    module = import_module("onnxq.emit.kept_simulation")
    monkeypatch.setattr(module, "simulate_in_pairs", written)
    monkeypatch.setattr(module, "quantized_values", changed_values)
    kept = KeptSimulation(ready.task.backend)
    kept.of(ready.state.graph, ready.state.plan.active, ready.state.qparams)
    assert made == ["model"]
    changed = ready.state.copy()
    weight = next(item.tensor for item in changed.plan if item.role == "weight")
    held = changed.qparams[weight]
    changed.qparams.put(weight, QParams(held.spec, held.scale * 2, held.zero_point), "doubled")
    kept.of(changed.graph, changed.plan.active, changed.qparams)
    assert made == ["model", weight]


def test_who_gets_a_model_may_change_it() -> None:
    ready = digits("onnxruntime")
    state, kept = ready.state, KeptSimulation(ready.task.backend)
    first = kept.of(state.graph, state.plan.active, state.qparams)
    expected = bits(first, list(ready.task.samples)[:1])
    for node in list(first.nodes("Conv")):
        first.set_values(node.inputs[1], np.zeros_like(first.values(node.inputs[1])))
    second = kept.of(state.graph, state.plan.active, state.qparams)
    np.testing.assert_array_equal(bits(second, list(ready.task.samples)[:1])[0], expected[0])


def test_other_formats_are_another_model() -> None:
    ready = digits("onnxruntime")
    state, kept = ready.state, KeptSimulation(ready.task.backend)
    kept.of(state.graph, state.plan.active, state.qparams)
    fewer = digits("onnxruntime", 4).state
    model = kept.of(fewer.graph, fewer.plan.active, fewer.qparams)
    feeds = list(ready.task.samples)[:1]
    np.testing.assert_array_equal(bits(model, feeds)[0], bits(anew(ready, fewer), feeds)[0])


@pytest.mark.parametrize(("backend", "weight_bits"), [("onnxruntime", 8), ("qnn", 8), ("openvino", 8)])
def test_states_of_a_search_have_the_bits_of_the_written_file(backend: str, weight_bits: int) -> None:
    ready = digits(backend, weight_bits)
    feeds = list(ready.task.samples)[:2]
    kept = KeptSimulation(ready.task.backend)
    chain = states(ready)
    for state in (settled(one, ready.task.backend) for one in [*chain, *chain[::-1]]):
        given = state.graph, state.plan.active, state.qparams, ready.task.backend
        model, anew = kept.in_integers(*given), to_qdq(*given, rounded=True)[0]
        for found, expected in zip(bits(model, feeds, {}), bits(anew, feeds, {}), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_relu_is_written_again_where_its_quantizer_no_longer_has_its_effect() -> None:
    ready = digits("onnxruntime")
    state, backend = ready.state, ready.task.backend
    kept = KeptSimulation(backend)
    before = kept.in_integers(state.graph, state.plan.active, state.qparams, backend)
    changed = state.copy()
    for node in changed.graph.nodes("Relu"):
        held = changed.qparams[node.outputs[0].name]
        moved = QParams(held.spec, held.scale, held.zero_point + 1)
        changed.qparams.put(node.outputs[0].name, moved, "moved")
    after = kept.in_integers(changed.graph, changed.plan.active, changed.qparams, backend)
    written = to_qdq(changed.graph, changed.plan.active, changed.qparams, backend)[0]
    assert len(after.nodes("Relu")) == len(written.nodes("Relu")) > len(before.nodes("Relu"))


def test_the_written_file_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = digits("onnxruntime")
    made: list[str] = []

    def written(*given: Any) -> QdqParts | None:
        made.append("model")
        return to_qdq_in_parts(*given)

    monkeypatch.setattr(import_module("onnxq.emit.kept_simulation"), "to_qdq_in_parts", written)
    kept = KeptSimulation(ready.task.backend)
    for state in states(ready):
        kept.in_integers(state.graph, state.plan.active, state.qparams, ready.task.backend)
    assert made == ["model"]
