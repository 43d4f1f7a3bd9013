"""Parts of a plan: layers with their quantizers, alone or left out; together they are the whole plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.calibrate import calibrate
from onnxq.demo import load_data, model_path
from onnxq.emit.simulate import simulate
from onnxq.graph import Graph
from onnxq.mixed_precision.parts import By, Part, all_but, alone, layers, parts_of, quantizers
from onnxq.refine import refine
from onnxq.runtime.session import float_session
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import Backend, Edge, QParamsTable, QuantPlan
from tests.golden_graphs import GOLDEN

NOTHING = Part("", "", {}, ())

Planned = tuple[Graph, QuantPlan, QParamsTable, Backend]


def planned(model: Any, backend: str, samples: Any) -> Planned:
    prepared = prepare(model, backend)
    qparams, plan, _ = calibrate(prepared.graph, make_plan(prepared), samples)
    return prepared.graph, plan, refine(prepared.graph, plan, qparams, prepared.backend).qparams, prepared.backend


def computed(setup: Planned, plan: QuantPlan, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    graph, _, qparams, backend = setup
    simulated, _ = simulate(graph, plan, qparams, backend)
    return list(float_session(simulated, optimize="none").run(None, feed))


@pytest.fixture(scope="module")
def demo() -> Planned:
    feeds = [{"image": image[np.newaxis]} for image in load_data().calibration[:4]]
    return planned(model_path(), "onnxruntime", feeds)


def test_a_layer_has_its_weight_its_bias_what_it_reads_and_its_result(demo: Planned) -> None:
    graph, plan, *_ = demo
    found = {part.name: part for part in layers(graph, plan)}
    share = found["residual1.conv"].share
    assert share == {
        "stem.relu.out": (Edge("residual1.conv", 0),),
        "residual1.conv.weight": (Edge("residual1.conv", 1),),
        "residual1.conv_bias": None,
        "residual1.relu.out": None,
    }
    assert found["residual1.conv"].nodes == ("residual1.conv", "residual1.relu")
    assert found["residual.add"].kind == "Add"
    assert "pool" not in found  # it moves values
    assert "flatten" not in found


def test_what_one_layer_reads_stays_float_for_the_others(demo: Planned) -> None:
    graph, plan, *_ = demo
    part = next(part for part in layers(graph, plan) if part.name == "residual1.conv")
    restricted = alone(graph, plan, part)
    assert restricted["stem.relu.out"].edges == (Edge("residual1.conv", 0),)  # residual.add reads it as it is
    assert list(restricted.quantized) == ["residual1.conv"]
    assert list(restricted.fused) == ["residual1.relu"]


def test_a_quantizer_has_all_tensors_of_its_scale(demo: Planned) -> None:
    _, plan, *_ = demo
    groups = {part.name: set(part.share) for part in quantizers(plan)}
    assert groups["residual.relu.out"] == {"residual.relu.out", "pool.out"}
    assert sum(len(members) for members in groups.values()) == len(plan)


def test_parts_can_be_weights_or_activations_alone(demo: Planned) -> None:
    graph, plan, *_ = demo
    weights = parts_of(graph, plan, "layer", "weights")
    assert {plan[name].role for part in weights for name in part.share} == {"weight", "bias"}
    assert "residual.add" not in {part.name for part in weights}
    activations = parts_of(graph, plan, "quantizer", "activations")
    assert {plan[name].role for part in activations for name in part.share} == {"activation"}


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt", "vitis", "sophgo_bm1688"])
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_all_parts_together_are_the_plan(name: str, backend: str) -> None:
    golden = GOLDEN[name]()
    setup = planned(golden.model, backend, golden.samples[:2])
    graph, plan, *_ = setup
    whole = computed(setup, plan, golden.samples[0])
    by: By
    for by in ("layer", "quantizer"):
        parts = parts_of(graph, plan, by)
        together = computed(setup, all_but(graph, plan, parts, NOTHING), golden.samples[0])
        for expected, found in zip(whole, together, strict=True):
            np.testing.assert_array_equal(found, expected)
        computed(setup, alone(graph, plan, parts[-1]), golden.samples[0])  # one part is a model, too
        without = computed(setup, all_but(graph, plan, parts, parts[0]), golden.samples[0])
        assert [array.shape for array in without] == [array.shape for array in whole]
