"""Quark 0.13 has the same block floating point: its operator gives the numbers of `onnxq.numerics.formats.bfp16`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxq.numerics import round_to_blocks
from onnxq.types import PerBlock, QuantSpec
from tests.readers.environment import reader_python, record, run_check

pytestmark = pytest.mark.readers

SHAPES = [(33,), (7, 16), (4, 20, 3), (2, 3, 5, 4), (1, 2, 9, 2, 3), (64, 64)]


def inputs() -> dict[str, tuple[np.ndarray, PerBlock]]:
    """Any bit patterns, halves of steps, and numbers around the smallest exponent, in blocks along every axis."""
    rng = np.random.default_rng(0)
    found = {}
    for shape in SHAPES:
        anything = rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
        halves = np.ldexp(rng.integers(-512, 512, shape).astype(np.float32), rng.integers(-3, 3, shape))
        tiny = np.ldexp(rng.normal(size=shape).astype(np.float32), rng.integers(-140, -120, shape))
        for kind, x in (("anything", anything), ("halves", halves), ("tiny", tiny)):
            for axis in range(-1, len(shape)):
                for size in (8, 16):
                    found[f"{kind} {shape} {axis} {size}"] = (x, PerBlock(axis, size))
    return found


def test_blocks_have_the_numbers_of_quarks_own_operator(tmp_path: Path) -> None:
    reader_python("quark")
    given, values = inputs(), {}
    for name, (x, blocks) in given.items():
        values |= {f"{name}/input": x, f"{name}/axis": np.array(blocks.axis), f"{name}/size": np.array(blocks.size)}
    np.savez(tmp_path / "cases.npz", **values)
    answer = run_check("quark", tmp_path / "cases.npz", script="bfp.py")
    assert answer["cases"] == len(given)
    usual = QuantSpec("bfp16").granularity
    assert usual is not None
    assert (answer["settings"]["axis"], answer["settings"]["block_size"]) == (usual.axis, usual.size)
    compared = 0
    with np.load(tmp_path / "cases_quark.npz") as theirs:
        for name, (x, blocks) in given.items():
            np.testing.assert_array_equal(round_to_blocks(x, blocks), theirs[f"{name}/result"], err_msg=name)
            compared += x.size
    record("quark", answer["version"], "vitis:strategy=fs", "bfp16", "values equal to Quark's BFP16 operator", compared)
