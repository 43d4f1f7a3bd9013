"""Quark 0.13, AMD's own quantizer, on onnxq's files: the same positions after refinement, the same DPU constants."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxq.emit.qdq import to_qdq
from onnxq.refine import refine
from onnxq.targets.amd import dpu_positions
from onnxq.targets.amd.simulate_average_pool import average_factor, mean_factor
from onnxq.targets.amd.simulate_clip import chip_bound
from onnxq.targets.amd.simulate_hard_sigmoid import SIXTH
from onnxq.targets.amd.simulate_leaky_relu import chip_slope
from tests.readers.environment import reader_python, record, run_check
from tests.targets.amd.dpu_graphs import drawn, planned

pytestmark = pytest.mark.readers

NARROW, WIDE = (0, 8), (-2, 12)


def write_pairs(folder: Path, backend_name: str, seeds: range, span: tuple[int, int]) -> int:
    """Files before and after onnxq's refinement; returns how many quantizers it moved."""
    graph, plan, backend = planned(backend_name)
    moved = 0
    for seed in seeds:
        before = drawn(plan, seed, *span)
        after = refine(graph, plan, before, backend).qparams
        moved += sum(before[tensor].scale != after[tensor].scale for tensor in before)
        for name, table in (("before", before), ("after", after)):
            to_qdq(graph, plan, table, backend)[0].save(folder / f"{seed:03}_{name}.onnx")
    return moved


@pytest.mark.parametrize("backend", ["vitis", "ryzenai"])
@pytest.mark.parametrize("span", [NARROW, WIDE])
def test_quark_settles_at_the_same_positions(
    tmp_path: Path, backend: str, span: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules alone: where one would clip a tensor, onnxq weighs costs, which Quark does not."""
    reader_python("quark")
    monkeypatch.setattr(dpu_positions, "Costs", lambda *_: None)
    moved = write_pairs(tmp_path, backend, range(10), span)
    answer = run_check("quark", tmp_path)
    assert answer["cases"] == 10
    assert moved > 0
    assert answer["moved_by_quark"] > 0
    assert answer["different"] == []
    assert answer["changed_again"] == [], "a file that onnxq refined still breaks a rule of Quark"
    assert answer["does_not_run"] == []
    # Quark's rules can undo each other for ever; what onnxq chose there breaks none of them (changed_again).
    assert len(answer["not_settled"]) <= 3
    what = f"positions equal to Quark's own refinement, drawn from {span[0]} .. {span[1]}"
    record("quark", answer["version"], backend, "dpu", what, answer["quantizers"])


@pytest.mark.parametrize("backend", ["vitis", "ryzenai"])
def test_quark_finds_nothing_to_change_in_what_costs_have_decided(tmp_path: Path, backend: str) -> None:
    reader_python("quark")
    moved = write_pairs(tmp_path, backend, range(10), WIDE)
    answer = run_check("quark", tmp_path)
    assert answer["cases"] == 10
    assert moved > 0
    assert answer["changed_again"] == [], "a file that onnxq refined still breaks a rule of Quark"
    assert answer["does_not_run"] == []
    record("quark", answer["version"], backend, "dpu", "files in which Quark changes nothing", answer["cases"])


def test_the_constants_of_the_simulation_are_those_of_quark() -> None:
    reader_python("quark")
    answer = run_check("quark", "--constants")
    for size, factor in answer["pools"].items():
        assert average_factor(int(size), int(size)) == pytest.approx(factor, rel=1e-7), size  # stored as float32
    for size, factor in answer["means"].items():
        assert mean_factor(int(size) ** 2) == pytest.approx(factor, rel=1e-7), size
    for alpha, slope in answer["slopes"].items():
        assert chip_slope(float(alpha)) == slope
    for low, high, chip_low, chip_high in answer["bounds"]:
        assert (chip_bound(low), chip_bound(high)) == (chip_low, chip_high)
    assert pytest.approx(answer["hard_sigmoid"] / 6, rel=1e-7) == SIXTH
    record("quark", answer["version"], "vitis", "single operators", "DPU constants equal", len(answer["pools"]))
