"""The refinement on real plans: parameters change, ties hold, and the result is what the file then says."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.emit.qdq import to_qdq
from onnxq.lint.limits import lint
from onnxq.numerics import fake_quantize
from onnxq.numerics.positions import exact_position, scale_at
from onnxq.refine import refine
from tests.targets.amd.dpu_graphs import drawn, planned, table_at


@pytest.mark.parametrize("seed", range(6))
def test_a_refined_plan_passes_the_lint_that_the_drawn_one_fails(seed: int) -> None:
    graph, plan, backend = planned()
    before = drawn(plan, seed)
    after = refine(graph, plan, before, backend)
    broken = lint(to_qdq(graph, plan, before, backend)[0], backend)
    assert broken
    assert {found.rule.split("_")[0] for found in broken} <= {"align", "shift", "hard"}
    assert lint(to_qdq(graph, plan, after.qparams, backend)[0], backend) == []


def test_tied_tensors_move_together_and_the_arguments_stay() -> None:
    graph, plan, backend = planned()
    before = drawn(plan, 1)
    copy = {name: before[name] for name in before}
    after = refine(graph, plan, before, backend).qparams
    assert all(before[name] is copy[name] for name in before)
    assert any(placement.tie for placement in plan)
    for placement in plan:
        assert after[placement.tensor] == after[plan.leader(placement.tensor)] or placement.tie is None
        assert after[placement.tensor].scale == after[plan.leader(placement.tensor)].scale


def test_every_moved_quantizer_has_a_note_with_both_positions_and_the_rule() -> None:
    graph, plan, backend = planned()
    before = drawn(plan, 2)
    after = refine(graph, plan, before, backend)
    leaders = dict.fromkeys(plan.leader(placement.tensor) for placement in plan)
    moved = [name for name in leaders if before[name].scale != after.qparams[name].scale]
    assert moved
    for name in moved:
        start, end = exact_position(before[name].scale), exact_position(after.qparams[name].scale)
        text = f"position of '{name}' moved from {start} to {end}: "
        assert sum(note.startswith(text) for note in after.notes) == 1
        assert "moved by dpu_positions" in after.qparams.provenance[name]


def test_weights_are_quantized_again_from_their_float_values() -> None:
    graph, plan, backend = planned()
    weight = next(p.tensor for p in plan if p.role == "weight" and graph.node(p.edges[0].node).op == "Conv")  # type: ignore[index]
    leaders = dict.fromkeys(plan.leader(placement.tensor) for placement in plan)
    before = table_at(plan, {name: 2 if name == weight else 5 for name in leaders} | dict.fromkeys(["x"], -6))
    before.integer_weights[weight] = np.zeros(graph.tensor(weight).shape, np.int8)
    after = refine(graph, plan, before, backend)
    assert after.qparams[weight].scale < before[weight].scale  # shift_cut = 2 - 6 - 5 was below 0
    assert weight not in after.qparams.integer_weights
    assert any("its fixed integers are dropped" in note for note in after.notes)
    file = to_qdq(graph, plan, after.qparams, backend)[0]
    stored = file.values(f"{weight}_quantized").astype(np.float32) * after.qparams[weight].scale
    np.testing.assert_array_equal(stored, fake_quantize(graph.values(weight), after.qparams[weight]))


@pytest.mark.parametrize("position", [-100, -3, 0, 5, 12, 100])
def test_positions_and_scales_are_each_others_inverse(position: int) -> None:
    assert exact_position(scale_at(position)) == position


@pytest.mark.parametrize("scale", [0.3, 0.0, -0.5, np.inf, np.nan, [0.5, 0.25]])
def test_what_is_no_power_of_two_has_no_position(scale: object) -> None:
    assert exact_position(np.asarray(scale, np.float64)) is None
