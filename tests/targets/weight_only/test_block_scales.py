"""Scales of blocks without data: never a larger error, and nobody's choice is overridden."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.calibrate import calibrate
from onnxq.numerics import by_rows, fake_quantize
from onnxq.refine import refine
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import QParamsTable
from tests.golden_graphs import GOLDEN


def parameters(options: str, **config: object) -> tuple[onnxq.Graph, QParamsTable, QParamsTable]:
    prepared = prepare(GOLDEN["transformer"]().model, f"weight_only:{options}", config)
    plan = make_plan(prepared)
    before, table = (calibrate(prepared.graph, plan).qparams for _ in range(2))
    return prepared.graph, before, refine(prepared.graph, plan, table, prepared.backend).qparams


def error(graph: onnxq.Graph, table: QParamsTable, name: str) -> float:
    values = graph.values(name)
    return float(np.square(values - fake_quantize(values, table[name])).sum())


@pytest.mark.parametrize("options", ["bits=4", "bits=2", "bits=4,symmetric=yes", "bits=2,symmetric=yes,block=16"])
def test_blocks_are_nearer_to_their_weights(options: str) -> None:
    graph, before, after = parameters(options)
    assert len(after) > 0
    for name in after:
        assert error(graph, after, name) <= error(graph, before, name)
        assert after.provenance[name] == "block_scales"
    total = [sum(error(graph, table, name) for name in table) for table in (before, after)]
    assert total[1] < 0.99 * total[0]


def test_eight_bits_keep_their_range() -> None:
    _, before, after = parameters("bits=8")
    assert all(before[name] == after[name] for name in before)


def test_scales_that_were_chosen_are_kept() -> None:
    _, before, after = parameters("bits=4", weight_observer="minmax")
    assert all(before[name] == after[name] for name in before)


def test_it_can_be_left_out(tmp_path: Path) -> None:
    result = onnxq.quantize(
        GOLDEN["transformer"]().model,
        backend="weight_only",
        config={"skip_refinements": ["block_scales"], "effort": 0},
        out=tmp_path,
    )
    assert set(result.qparams.provenance.values()) == {"minmax"}


@pytest.mark.parametrize("options", ["bits=4,block=16", "bits=4,symmetric=yes,block=16"])
def test_a_weight_in_pieces_has_the_same_scales(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large weights are searched some rows at a time; blocks stay whole."""
    _, _, whole = parameters(options)
    monkeypatch.setattr(by_rows, "PIECE_ELEMENTS", 100)
    _, _, pieces = parameters(options)
    assert list(whole) == list(pieces)
    assert all(whole[name] == pieces[name] for name in whole)


@pytest.mark.parametrize("bits", ["4", "2"])
def test_matmul_nbits_has_scales_of_either_sign_and_a_dequantize_linear_positive_ones(bits: str) -> None:
    """One more step on the side of the largest value: symmetric blocks are nearer to their weights."""
    errors = {}
    for form in ("nbits", "dq"):
        graph, _, after = parameters(f"bits={bits},symmetric=yes,ops=linear,form={form}")
        errors[form] = sum(error(graph, after, name) for name in after)
        assert any((after[name].scale < 0).any() for name in after) == (form == "nbits")
    assert errors["nbits"] < 0.95 * errors["dq"]


def test_other_formats_of_single_weights_have_positive_scales() -> None:
    config = {"node": {"*": {"weight": {"symmetric": False}}}}
    _, _, after = parameters("bits=4,symmetric=yes,ops=linear,form=nbits", **config)
    assert all((after[name].scale > 0).all() and not after[name].spec.signed_scale for name in after)
