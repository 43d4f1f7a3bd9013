"""Squared errors of blocks, computed in place: the bits of the long way."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.numerics import fake_quantize
from onnxq.observers import make_observer, observe_constant
from onnxq.ptq.weights.block_squares import BlockSquares
from onnxq.types import PerBlock, QParams, QuantSpec

SPECS = [
    QuantSpec(dtype, symmetric=symmetric, granularity=PerBlock(axis, 16))
    for dtype, symmetric in (("int4", True), ("uint4", False), ("int2", False), ("int8", True), ("int16", False))
    for axis in (0, 1, -1)
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_squares_are_those_of_fake_quantize_bit_for_bit(spec: QuantSpec) -> None:
    values = np.random.default_rng(3).normal(size=(64, 32, 48)).astype(np.float32)
    values[:3] *= np.float32(1e30)
    values[5, :, ::3] = -0.0
    values[6, 4] = 1e-42
    held = observe_constant(values, make_observer("minmax"), spec)
    assert BlockSquares.fits(values, spec)
    found = BlockSquares(values, spec)
    for factor in (1.0, 0.78, 0.3):  # one after the other, in the same memory
        tried = QParams(spec, held.scale * np.float32(factor), held.zero_point)
        with np.errstate(over="ignore"):
            expected = np.square(values - fake_quantize(values, tried))
        assert found.squares(tried).tobytes() == expected.tobytes()


def test_what_the_short_way_is_not_for() -> None:
    values = np.zeros((32, 8), np.float32)
    spec = QuantSpec("int4", granularity=PerBlock(0, 16))
    assert BlockSquares.fits(values, spec)
    assert not BlockSquares.fits(values[:20], spec)
    assert not BlockSquares.fits(values.astype(np.float64), spec)
    assert not BlockSquares.fits(values, spec.replace(rounding="half_away"))
    assert not BlockSquares.fits(np.where(np.eye(32, 8), np.nan, values).astype(np.float32), spec)
