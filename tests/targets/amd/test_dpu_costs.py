"""A rule on positions is kept by the change that costs least: what is clipped is weighed, not overlooked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.emit.qdq import to_qdq
from onnxq.errors import UnsupportedError
from onnxq.lint.limits import lint
from onnxq.numerics import fake_quantize
from onnxq.numerics.positions import exact_position
from onnxq.refine import refine
from onnxq.targets.amd.dpu_rules import RULES, Site
from onnxq.targets.amd.dpu_settle import settle
from tests.targets.amd.dpu_graphs import planned, table_at
from tests.zoo_graphs.net import Net

CONV = Site("conv", "Conv", ("i",), "w", "b", "o")


def conv_model(weights: float, bias: float) -> onnx.ModelProto:
    """A 1 x 1 convolution with weights up to `weights` and one bias of `bias`."""
    net = Net("bias")
    x = net.input("x", (1, 4, 6, 6))
    rng = np.random.default_rng(0)
    weight = rng.uniform(-weights, weights, (4, 4, 1, 1))
    weight[0, 0] = weights
    net.node("Conv", x, net.floats(weight, "w"), net.floats([bias, 0.1, -0.2, 0.3], "b"), output="y", name="conv")
    net.output("y", (1, 4, 6, 6))
    return net.model()


def samples(size: float) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.uniform(-size, size, (1, 4, 6, 6)).astype(np.float32)} for _ in range(4)]


@pytest.mark.parametrize("backend", ["vitis", "ryzenai"])
def test_a_large_bias_of_a_layer_with_small_numbers_is_not_clipped(backend: str) -> None:
    # i + w is 21 or more and the bias needs position 5: shift_bias allows 15.
    result = onnxq.quantize(conv_model(0.1, 3.10), backend=backend, data=samples(0.05), config={"effort": 0})
    held = result.qparams["b"]
    stored = fake_quantize(np.asarray([3.10], np.float32), held)
    assert abs(stored[0] - 3.10) <= held.scale / 2
    assert result.report["sqnr_db"]["y"] > 40
    assert lint(result.model, onnxq.BACKENDS.get(backend)) == []


def positions_after(weights: float, bias: float, **at: int) -> dict[str, int | None]:
    """Positions of the refined parameters of `conv_model`, calibrated to those of `at` (x, w, b, y)."""
    graph, plan, backend = planned("ryzenai", conv_model(weights, bias))
    after = refine(graph, plan, table_at(plan, at), backend).qparams
    assert not lint(to_qdq(graph, plan, after, backend)[0], backend)
    return {name: exact_position(after[name].scale) for name in at}


def test_a_bias_with_room_is_raised_as_quark_does() -> None:
    assert positions_after(0.1, 0.9, x=11, w=10, b=5, y=5) == {"x": 11, "w": 10, "b": 6, "y": 5}


def test_a_bias_is_raised_as_far_as_it_has_room_and_the_rest_is_lowered() -> None:
    after = positions_after(0.1, 1.9, x=12, w=10, b=5, y=6)
    assert after["b"] == 6
    assert (after["x"] or 0) + (after["w"] or 0) == 21


def test_a_weight_that_would_be_clipped_stays_and_the_output_is_lowered() -> None:
    # w + i - o is -3. The weights of 3.9 fill position 5.
    assert positions_after(3.9, 0.5, x=-3, w=5, b=5, y=5) == {"x": -3, "w": 5, "b": 5, "y": 2}


def test_a_weight_with_room_is_raised_as_quark_does() -> None:
    assert positions_after(0.4, 0.5, x=-3, w=5, b=5, y=5) == {"x": -3, "w": 8, "b": 5, "y": 5}


def test_without_a_cost_every_rule_moves_what_quark_moves() -> None:
    settled = settle([CONV], {"i": 11, "w": 10, "b": 5, "o": 5})
    assert settled.positions == {"i": 11, "w": 10, "b": 6, "o": 5}


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_cost_prefers_the_rules_hold_in_the_end(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["a", "b", "c", "d", "e"]
    sites = [
        Site("first", "Conv", ("a",), "w0", "b0", "b", leaky=bool(rng.integers(2))),
        Site("gate", "HardSigmoid", ("b",), output="c", hard_sigmoid=True),
        Site("swish", "Mul", ("b", "c"), output="d", swish=True),
        Site("joined", "Concat", ("d", "a"), output="e"),
        Site("last", "Gemm", ("e",), "w1", "b1", "f"),
        Site("sum", "Add", ("f", "e"), output="g"),
    ]
    slots = [*names, "f", "g", "w0", "b0", "w1", "b1"]
    start = {slot: int(rng.integers(-10, 20)) for slot in slots}
    prices = {slot: float(rng.uniform(0, 10)) for slot in slots}

    def cost(site: Site, positions: Mapping[str, int]) -> float:
        return sum(prices[slot] * abs(positions[slot] - start[slot]) for slot in slots)

    try:
        settled = settle(sites, start, (), cost)
    except UnsupportedError:  # then it is not the cost's fault
        with pytest.raises(UnsupportedError):
            settle(sites, start)
        return
    assert [found for rule in RULES.values() for site in sites for found in rule(site, settled.positions)] == []
