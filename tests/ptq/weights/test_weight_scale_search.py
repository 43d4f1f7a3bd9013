"""Scales of weights are searched for every target, graphs stay as they are, and scales of others are left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxq.errors import ConfigError
from onnxq.numerics import fake_quantize
from onnxq.types import PerTensor
from tests.golden_graphs import transformer
from tests.ptq.calibrated import FOUR_BITS, digits, improved, ready, weights


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime", "openvino", "rknn"])
def test_every_target_gains(backend: str) -> None:
    model = digits(backend)
    found = improved("weight_scale_search", backend)
    assert len(found.changed) == 7
    assert model.sqnr(found.state) > model.sqnr() + 0.5
    assert found.state.graph.values("classifier.weight") is not None
    for name in weights(model.state):
        np.testing.assert_array_equal(found.state.graph.values(name), model.state.graph.values(name))
        assert found.state.qparams.provenance[name] == "weight_search"
        assert found.state.qparams[name].spec == model.state.qparams[name].spec


def test_four_bits_gain_much_by_the_error_of_outputs() -> None:
    model = digits("tensorrt", 4)
    assert model.sqnr(improved("weight_scale_search", "tensorrt", 4).state) > model.sqnr() + 3.0


def test_the_squared_error_of_each_weight_is_smaller() -> None:
    model = digits("academic:w_bits=4")
    found = model.improve("weight_scale_search:objective=weights")
    for name in weights(model.state):
        weight = model.state.graph.values(name)
        before, after = (
            np.square(weight - fake_quantize(weight, state.qparams[name])).sum() for state in (model.state, found.state)
        )
        assert after < before


def test_powers_of_two_stay_what_they_are() -> None:
    model = digits("vitis")
    state = model.state.copy()
    for name in weights(state):  # four times too large
        held = state.qparams[name]
        state.qparams.put(name, replace(held, scale=held.scale * 4), "test")
    found = replace(model, state=state).improve("weight_scale_search")
    assert len(found.changed) == 7
    for name in weights(state):
        assert np.log2(found.state.qparams[name].scale) % 1 == 0
        assert found.state.qparams[name].scale < state.qparams[name].scale


def test_logarithmic_numbers_are_declined() -> None:
    found = digits("nnie").improve("weight_scale_search")
    assert found.changed == ()
    assert len(found.declined) == 7


def test_a_range_that_was_given_is_kept() -> None:
    model = digits("tensorrt")
    name = weights(model.state)[0]
    fixed = replace(model.state.plan[name], observer="fixed:-1,1")
    plan = replace(model.state.plan, placements={**model.state.plan.placements, name: fixed})
    found = replace(model, state=replace(model.state, plan=plan)).improve("weight_scale_search:weights")
    assert f"{name}: its range is given" in found.declined
    assert found.state.qparams[name] == model.state.qparams[name]


def tied(other_role: str):
    """Two weights of the classifier, or a weight and an activation, with one scale."""
    model = digits("qnn", 4)
    state = model.state.copy()
    first, second = weights(state)[:2]
    if other_role == "activation":
        second = next(p.tensor for p in state.plan if p.role == "activation" and p.tie is None)
    assert isinstance(state.plan[first].spec.granularity, PerTensor)
    follower = replace(state.plan[second], spec=state.plan[first].spec, tie=first, observe=(), observer="minmax")
    plan = replace(state.plan, placements={**state.plan.placements, second: follower})
    larger = max((state.qparams[name] for name in weights(state)[:2]), key=lambda held: float(held.scale))
    for name in (first, second):
        state.qparams.put(name, larger, "test")
    return replace(model, state=replace(state, plan=plan)), first, second


def test_weights_with_one_scale_get_one_scale() -> None:
    model, first, second = tied("weight")
    found = model.improve("weight_scale_search")
    assert found.state.qparams[first] == found.state.qparams[second]
    assert found.state.qparams[first] != model.state.qparams[first]


def test_the_scale_of_an_activation_is_not_touched() -> None:
    model, first, second = tied("activation")
    found = model.improve("weight_scale_search:weights")
    assert found.state.qparams[first] == model.state.qparams[first]
    assert f"{first}: it has the scale of '{second}'" in found.declined


def test_linear_layers_of_a_transformer() -> None:
    golden = transformer()
    model = ready(golden.model, golden.samples, "academic_nlp", FOUR_BITS)
    found = model.improve("weight_scale_search")
    assert len(found.changed) >= 6
    for errors in found.details.values():
        assert errors["after"] < errors["before"]


def test_unknown_objectives_are_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'outputs'"):
        digits("tensorrt").improve("weight_scale_search:output")
