"""The search for scales: the error of no cell grows, the format's rules hold, and it finds what trying all finds."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.ptq.weights.cells import cell_ranges, qparams_of_cells, reduce_cells, round_to_grid, spread
from onnxq.ptq.weights.gptq_matrix import output_errors
from onnxq.ptq.weights.matrices import MatrixView, view_of_columns, view_of_conv, view_of_rows
from onnxq.ptq.weights.moments import ThinMoments
from onnxq.ptq.weights.scale_search import candidates, has_whole_rows, search_by_outputs, search_by_weights
from onnxq.types import PerBlock, PerChannel, PerTensor, QParams, QuantSpec

SPECS = (
    QuantSpec("int4"),
    QuantSpec("int4", narrow_range=True, granularity=PerChannel(0)),
    QuantSpec("int8", granularity=PerChannel(0), power_of_two=True),
    QuantSpec("uint4", symmetric=False, granularity=PerChannel(0)),
    QuantSpec("uint4", symmetric=False),
    QuantSpec("int3", granularity=PerBlock(1, 8)),
    QuantSpec("uint4", symmetric=False, granularity=PerBlock(1, 7)),
    QuantSpec("int4", granularity=PerChannel(1)),
    QuantSpec("int4", granularity=PerBlock(0, 4)),
    QuantSpec("fp8_e4m3", granularity=PerChannel(0)),
)


def weight_of(seed: int, shape: tuple[int, ...] = (10, 20)) -> np.ndarray:
    """With a few large values, so that clipping pays."""
    return np.random.default_rng(seed).standard_t(3, size=shape).astype(np.float32)


def moments_of(seed: int, groups: int, columns: int) -> np.ndarray:
    rng = np.random.default_rng(seed + 1)
    mix = rng.normal(size=(groups, columns, columns)) * np.exp(-np.arange(columns) / 5)
    x = np.maximum(rng.normal(size=(groups, 100, columns)) @ mix.swapaxes(1, 2), 0)
    return x.swapaxes(1, 2) @ x / 100


def parameters(values: np.ndarray, spec: QuantSpec) -> QParams:
    return qparams_of_cells(*cell_ranges(values, spec.granularity), spec)


def error_of_outputs(values: np.ndarray, qparams: QParams, view: MatrixView, moments: np.ndarray) -> np.ndarray:
    return output_errors(view.unfold(values - fake_quantize(values, qparams)), moments)


@given(st.integers(0, 2**32 - 2), st.sampled_from(SPECS))
@settings(max_examples=40, deadline=None)
def test_no_cell_is_further_from_the_weight(seed: int, spec: QuantSpec) -> None:
    values = weight_of(seed)
    held = parameters(values, spec)
    found = search_by_weights(values, held, candidates(values, held, 0.0, False))
    before, after = (
        reduce_cells(np.square(values - fake_quantize(values, each), dtype=np.float64), spec.granularity, np.add)
        for each in (held, found)
    )
    assert (after <= before).all()


@given(st.integers(0, 2**32 - 2), st.sampled_from(SPECS))
@settings(max_examples=25, deadline=None)
def test_the_outputs_are_never_further_away(seed: int, spec: QuantSpec) -> None:
    values, moments, view = weight_of(seed), moments_of(seed, 1, 20), view_of_rows((10, 20))
    held = parameters(values, spec)
    found = search_by_outputs(values, held, candidates(values, held, 0.0, False), view, moments)
    before, after = (error_of_outputs(values, each, view, moments) for each in (held, found))
    assert after.sum() <= before.sum() * (1 + 1e-5)  # sums of float32
    if spec.granularity == PerChannel(0):
        assert (after <= before * (1 + 1e-5)).all()


@given(st.integers(0, 2**32 - 2), st.sampled_from([PerTensor(), PerChannel(0)]))
@settings(max_examples=20, deadline=None)
def test_groups_of_a_convolution_have_their_own_inputs(seed: int, granularity: PerTensor | PerChannel) -> None:
    values, moments, view = weight_of(seed, (6, 1, 3, 3)), moments_of(seed, 6, 9), view_of_conv((6, 1, 3, 3), 6)
    held = parameters(values, QuantSpec("int3", granularity=granularity))
    found = search_by_outputs(values, held, candidates(values, held, 0.0, False), view, moments)
    before, after = (error_of_outputs(values, each, view, moments).sum() for each in (held, found))
    assert after <= before * (1 + 1e-5)


def test_the_best_of_many_scales_is_found() -> None:
    values, moments, view = weight_of(7), moments_of(7, 1, 20), view_of_rows((10, 20))
    held = parameters(values, QuantSpec("int4", granularity=PerChannel(0)))
    found = search_by_outputs(values, held, candidates(values, held, 0.0, False), view, moments)
    tried = [
        error_of_outputs(values, QParams(held.spec, held.scale * np.float32(factor), held.zero_point), view, moments)
        for factor in np.linspace(0.33, 1.2, 400)
    ]
    best = np.min(tried, axis=0)
    assert error_of_outputs(values, found, view, moments).sum() < 1.15 * best.sum()
    assert best.sum() < 0.5 * error_of_outputs(values, held, view, moments).sum()


@given(st.integers(0, 2**32 - 2))
@settings(max_examples=10, deadline=None)
def test_scales_keep_the_rules_of_their_format(seed: int) -> None:
    values = weight_of(seed)
    positions = parameters(values, QuantSpec("int4", power_of_two=True, granularity=PerChannel(0)))
    found = search_by_weights(values, positions, candidates(values, positions, 0.0, False))
    np.testing.assert_array_equal(np.log2(found.scale) % 1, 0)
    held = parameters(values, QuantSpec("int4", granularity=PerChannel(0)))
    least = float(held.scale.max()) / 2
    raised = QParams(held.spec, np.maximum(held.scale, np.float32(least)), held.zero_point)
    found = search_by_weights(values, raised, candidates(values, raised, least, False))
    assert (found.scale >= np.float32(least)).all()
    found = search_by_weights(values, held, candidates(values, held, 0.0, True))
    changed = found.scale != held.scale
    np.testing.assert_array_equal(found.scale[changed], found.scale[changed].astype(np.float16))


@pytest.mark.parametrize("granularity", [PerChannel(0), PerTensor()])
def test_wide_rows_are_searched_almost_as_well_with_some_inputs(granularity: PerChannel | PerTensor) -> None:
    random = np.random.default_rng(3)
    values, view = weight_of(3, (16, 120)), view_of_rows((16, 120))
    inputs = random.normal(size=(1, 4000, 120)) @ random.normal(size=(120, 120)) + 1.0
    moments = inputs.swapaxes(1, 2) @ inputs / 4000
    thin = ThinMoments((inputs[:, :48] / np.sqrt(48)).astype(np.float32))
    held = parameters(values, QuantSpec("int4", granularity=granularity))
    of = candidates(values, held, 0.0, False)
    whole, part = (
        error_of_outputs(values, search_by_outputs(values, held, of, view, seen), view, moments).sum()
        for seen in (moments, thin)
    )
    assert part < 1.15 * whole
    assert part < 0.9 * error_of_outputs(values, held, view, moments).sum()


def test_which_scales_are_those_of_whole_rows() -> None:
    rows, columns = view_of_rows((10, 20)), view_of_columns((20, 10))
    assert has_whole_rows(rows, PerTensor())
    assert has_whole_rows(rows, PerChannel(0))
    assert has_whole_rows(columns, PerChannel(-1))
    assert not has_whole_rows(rows, PerChannel(1))
    assert not has_whole_rows(columns, PerChannel(0))
    assert not has_whole_rows(rows, PerBlock(1, 5))


@given(st.integers(0, 2**32 - 2), st.sampled_from(SPECS))
@settings(max_examples=30, deadline=None)
def test_spread_and_reduce_are_what_numerics_means_by_a_granularity(seed: int, spec: QuantSpec) -> None:
    values = weight_of(seed, (9, 11))
    held = parameters(values, spec)
    low, high = cell_ranges(values, spec.granularity)
    assert held == qparams_from_range(low, high, spec)
    scale, zero_point = (spread(each, spec.granularity, values.shape) for each in (held.scale, held.zero_point))
    np.testing.assert_array_equal(round_to_grid(values, scale, zero_point, spec), fake_quantize(values, held))


@pytest.mark.parametrize(
    "spec",
    [QuantSpec("int8", granularity=PerChannel(1)), QuantSpec("int4"), QuantSpec("int4", granularity=PerChannel(0))],
)
def test_a_large_table_is_tried_in_parts_and_gets_the_scales_of_the_whole(
    spec: QuantSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("onnxq.ptq.weights.scale_search")
    values = weight_of(5, (1000, 12))
    held = parameters(values, spec)
    whole = search_by_weights(values, held, candidates(values, held, 0.0, False))
    sizes = set()

    def watched(part: np.ndarray, qparams: QParams) -> np.ndarray:
        sizes.add(part.shape)
        return fake_quantize(part, qparams)

    monkeypatch.setattr(module, "PART", 3000)
    monkeypatch.setattr(module, "fake_quantize", watched)
    found = search_by_weights(values, held, candidates(values, held, 0.0, False))
    np.testing.assert_array_equal(found.scale, whole.scale)
    # Only columns have values in every part.
    assert sizes == ({(250, 12)} if spec.granularity == PerChannel(1) else {(1000, 12)})
