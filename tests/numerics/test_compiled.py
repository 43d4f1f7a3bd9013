"""What is rounded in C has the bits of what numpy rounds, whatever the layout of the scales."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from onnxq.errors import DataError
from onnxq.numerics import compiled, fake_quantize, qparams_from_range, quantize
from onnxq.numerics.ranges import MAX_SCALE, MIN_SCALE
from onnxq.numerics.spare import SpareMemory
from onnxq.observers import make_observer, observe_constant
from onnxq.ptq.weights.scale_search import candidates, search_by_weights
from onnxq.types import PerBlock, PerChannel, PerTensor, QParams, QuantSpec

FORMATS = [
    QuantSpec("int4"),
    QuantSpec("uint4", symmetric=False),
    QuantSpec("int8"),
    QuantSpec("int8", narrow_range=True),
    QuantSpec("uint8", symmetric=False),
    QuantSpec("uint8"),
    QuantSpec("uint16", symmetric=False),
    QuantSpec("int2"),
    QuantSpec("int4", signed_scale=True),
    QuantSpec("int2", signed_scale=True),
]
LAYOUTS = [
    PerTensor(),
    PerChannel(0),
    PerChannel(1),
    PerChannel(-1),
    PerBlock(0, 4),
    PerBlock(1, 16),
    PerBlock(2, 8),
    PerBlock(2, 32),
]
BLOCKS = [PerBlock(0, 32), PerBlock(0, 128), PerBlock(0, 16), PerBlock(1, 32), PerBlock(1, 128), PerBlock(1, 16)]

in_c = pytest.mark.skipif(not compiled.COMPILED, reason="built without a compiler")


def values_of(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Normal numbers, exact halves of a step, zeros of both signs, and a few that are far out."""
    random = np.random.default_rng(seed)
    x = random.standard_normal(shape).astype(np.float32)
    flat = x.reshape(-1)
    flat[::7] = np.round(flat[::7] * 4) / 4
    flat[::31] *= np.float32(20)
    flat[3], flat[5] = np.float32(-0.0), np.float32(0.0)
    return x


def parameters(x: np.ndarray, spec: QuantSpec) -> QParams:
    shape = spec.scale_shape(x.shape)
    random = np.random.default_rng(1)
    low, high = -random.uniform(0.5, 4, shape), random.uniform(0.5, 4, shape)
    return qparams_from_range(low, high, spec)


def by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "COMPILED", False)


@in_c
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("spec", FORMATS, ids=lambda spec: f"{spec.dtype}-{spec.symmetric}-{spec.qmin}")
def test_codes_and_rounded_values_have_the_bits_of_numpy(monkeypatch, spec, layout):
    x = values_of((4, 48, 64))
    held = parameters(x, spec.replace(granularity=layout))
    codes, real = quantize(x, held), fake_quantize(x, held)
    by_numpy(monkeypatch)
    np.testing.assert_array_equal(codes, quantize(x, held), strict=True)
    np.testing.assert_array_equal(real.view(np.uint32), fake_quantize(x, held).view(np.uint32))


@in_c
def test_quotients_beyond_float32_and_infinities_saturate(monkeypatch):
    x = np.array([3e38, -3e38, np.inf, -np.inf, 1e-45, -1e-45], np.float32)
    held = QParams(QuantSpec("int8"), np.float32(1e-3), np.int32(0))
    found = fake_quantize(x, held)
    by_numpy(monkeypatch)
    np.testing.assert_array_equal(found.view(np.uint32), fake_quantize(x, held).view(np.uint32))


@pytest.mark.parametrize("through_c", [pytest.param(True, marks=in_c), False])
def test_nan_is_refused_with_its_place(monkeypatch, through_c):
    monkeypatch.setattr(compiled, "COMPILED", through_c)
    x = values_of((6, 10))
    x[2, 7] = np.nan
    for compute in (quantize, fake_quantize):
        with pytest.raises(DataError, match=r"NaN at index \(2, 7\)"):
            compute(x, parameters(x, QuantSpec("int8", granularity=PerChannel(0))))


@in_c
@pytest.mark.parametrize("layout", [*BLOCKS, PerBlock(1, 100)], ids=str)
@pytest.mark.parametrize("spec", FORMATS[:2], ids=lambda spec: spec.dtype)
def test_ranges_of_blocks_are_those_of_numpy(monkeypatch, spec, layout):
    x = values_of((256, 384))
    observed = [observe_constant(x, make_observer("minmax"), spec.replace(granularity=layout))]
    by_numpy(monkeypatch)
    observed.append(observe_constant(x, make_observer("minmax"), spec.replace(granularity=layout)))
    assert observed[0] == observed[1]


@in_c
@pytest.mark.parametrize("columns", [384, 70, 2])
@pytest.mark.parametrize("layout", BLOCKS, ids=str)
@pytest.mark.parametrize("spec", FORMATS, ids=lambda spec: f"{spec.dtype}-{spec.symmetric}-{spec.qmin}")
def test_scales_of_blocks_are_those_that_numpy_finds(monkeypatch, spec, layout, columns):
    spec = spec.replace(granularity=layout)
    x = values_of((256, columns)) if layout.axis == 0 else values_of((columns, 256))
    x[:128, 0] = 0  # blocks of zeros
    held = observe_constant(x, make_observer("minmax"), spec)
    factors = (1.08, 0.93, 0.86, 0.78, 0.65)
    scale, zero_point = np.array(held.scale), np.array(held.zero_point, order="C")
    assert compiled.search_block_scales_in_c(x, spec, scale, zero_point, factors, (MIN_SCALE, MAX_SCALE))
    found = QParams(spec, scale, zero_point)
    by_numpy(monkeypatch)
    assert found == search_by_weights(x, held, candidates(x, held, 0.0, False), factors)
    assert found != held or spec.bits > 4  # of many bits the largest value is worth its range


@pytest.mark.parametrize("through_c", [pytest.param(True, marks=in_c), False])
@pytest.mark.parametrize("place", [0, 1000, 4097])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_found(monkeypatch, value, place, through_c):
    monkeypatch.setattr(compiled, "COMPILED", through_c)
    x = values_of((4098,))
    x[1] = np.finfo(np.float32).max
    assert compiled.all_finite(x)
    x[place] = value
    assert not compiled.all_finite(x)


@pytest.mark.parametrize("through_c", [pytest.param(True, marks=in_c), False])
def test_every_half_is_the_float_that_numpy_makes_of_it(monkeypatch, through_c):
    monkeypatch.setattr(compiled, "COMPILED", through_c)
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    found = compiled.in_float32(every.reshape(256, 256), SpareMemory())
    np.testing.assert_array_equal(found.ravel().view(np.uint32), every.astype(np.float32).view(np.uint32))


def test_memory_is_used_again_when_no_view_is_left():
    memory = SpareMemory()
    first = memory.array((100, 10))
    place, part = first.ctypes.data, first[3:5]
    first[:], other = 1, memory.array((100, 10))
    assert other.ctypes.data != place
    del first
    assert memory.array((90, 11)).ctypes.data != place  # `part` still reads it
    np.testing.assert_array_equal(part, 1)
    del part
    assert memory.array((90, 11)).ctypes.data == place
    large = memory.array((1000, 10))
    large[:] = 0
    assert type(memory)().array((2,)).shape == (2,)


def test_this_machine_rounds_in_c():
    """A compiler is part of a development machine; a build that broke must not pass unnoticed."""
    assert compiled.COMPILED or shutil.which("cc") is None
