"""GPTQ on matrices: never worse than plain rounding, on the grid, and much better where inputs are correlated."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.errors import SpecError
from onnxq.numerics import fake_quantize
from onnxq.ptq.weights.cells import cell_ranges, qparams_of_cells
from onnxq.ptq.weights.gptq_matrix import gptq_matrix, inverse_factor, output_errors
from onnxq.types import PerBlock, PerChannel, PerTensor, QParams, QuantSpec
from onnxq.types.granularity import Granularity

FORMATS = (
    ("int4", True, PerTensor()),
    ("int8", True, PerChannel(0)),
    ("int3", True, PerChannel(1)),
    ("uint4", False, PerChannel(0)),
    ("int4", True, PerBlock(1, 8)),
    ("uint2", False, PerBlock(1, 5)),
    ("fp8_e4m3", True, PerChannel(0)),
)


def problem(seed: int, outputs: int = 6, inputs: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """A weight and the moments of correlated inputs that are mostly positive, as behind a ReLU."""
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(inputs, inputs)) * np.exp(-np.arange(inputs) / 4)
    x = np.maximum(rng.normal(size=(300, inputs)) @ mix.T + 0.5, 0)
    return rng.standard_t(4, size=(outputs, inputs)).astype(np.float32), x.T @ x / len(x)


def parameters(weight: np.ndarray, dtype: str, symmetric: bool, granularity: Granularity) -> QParams:
    spec = QuantSpec(dtype, symmetric=symmetric, granularity=granularity)
    return qparams_of_cells(*cell_ranges(weight, granularity), spec)


def error(weight: np.ndarray, rounded: np.ndarray, moments: np.ndarray) -> np.ndarray:
    return output_errors((weight - rounded)[None], moments[None])[0]


@given(st.integers(0, 2**32 - 1), st.sampled_from(FORMATS), st.booleans(), st.sampled_from([0.001, 0.01, 0.3]))
@settings(max_examples=60, deadline=None)
def test_no_row_is_worse_than_plain_rounding_and_all_values_are_on_the_grid(
    seed: int, form: tuple[str, bool, Granularity], act_order: bool, damp: float
) -> None:
    weight, moments = problem(seed)
    qparams = parameters(weight, *form)
    rounded, same = gptq_matrix(weight, moments, qparams, act_order=act_order, damp=damp)
    assert same is qparams
    np.testing.assert_array_equal(fake_quantize(rounded, qparams), rounded)
    assert (error(weight, rounded, moments) <= error(weight, fake_quantize(weight, qparams), moments)).all()


def test_the_error_is_a_small_part_of_that_of_plain_rounding() -> None:
    weight, moments = problem(1, 64, 300)  # more columns than a block has
    qparams = parameters(weight, "int4", True, PerChannel(0))
    nearest = error(weight, fake_quantize(weight, qparams), moments).mean()
    for act_order in (True, False):
        rounded, _ = gptq_matrix(weight, moments, qparams, act_order=act_order)
        assert error(weight, rounded, moments).mean() < 0.25 * nearest


def test_blocks_of_columns_change_nothing_but_the_order_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, moments = problem(2, 8, 60)
    qparams = parameters(weight, "int4", True, PerChannel(0))
    whole, _ = gptq_matrix(weight, moments, qparams)
    monkeypatch.setattr(import_module("onnxq.ptq.weights.gptq_matrix"), "COLUMNS", 7)
    np.testing.assert_array_equal(gptq_matrix(weight, moments, qparams)[0], whole)


def test_independent_inputs_are_rounded_plainly() -> None:
    weight, _ = problem(3)
    qparams = parameters(weight, "int4", True, PerChannel(0))
    rounded, _ = gptq_matrix(weight, np.eye(weight.shape[1]), qparams)
    np.testing.assert_array_equal(rounded, fake_quantize(weight, qparams))


@pytest.mark.parametrize("act_order", [True, False])
def test_inputs_that_are_always_zero_disturb_nothing(act_order: bool) -> None:
    weight, moments = problem(4)
    moments[3], moments[:, 3] = 0.0, 0.0
    qparams = parameters(weight, "int4", True, PerChannel(0))
    rounded, _ = gptq_matrix(weight, moments, qparams, act_order=act_order)
    assert np.isfinite(rounded).all()
    assert error(weight, rounded, moments).sum() < error(weight, fake_quantize(weight, qparams), moments).sum()


def test_inputs_that_are_all_zero_leave_plain_rounding() -> None:
    weight, moments = problem(4)
    qparams = parameters(weight, "int4", True, PerChannel(0))
    rounded, _ = gptq_matrix(weight, np.zeros_like(moments), qparams)
    np.testing.assert_array_equal(rounded, fake_quantize(weight, qparams))


def test_the_factor_is_that_of_the_inverse() -> None:
    _, moments = problem(5)
    factor = inverse_factor(moments[None], 0.01)[0]
    np.testing.assert_array_equal(factor, np.triu(factor))
    damped = moments + 0.01 * np.diag(moments).mean() * np.eye(len(moments))
    np.testing.assert_allclose(factor.T @ factor, np.linalg.inv(damped), rtol=1e-6, atol=1e-9)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["int4", "uint4"]))
@settings(max_examples=20, deadline=None)
def test_new_ranges_of_blocks_are_taken_where_they_help(seed: int, dtype: str) -> None:
    weight, moments = problem(seed)
    held = parameters(weight, dtype, dtype == "int4", PerBlock(1, 6))  # 20 columns: the last block is shorter
    fixed, _ = gptq_matrix(weight, moments, held, act_order=False)
    rounded, found = gptq_matrix(weight, moments, held, act_order=False, recompute=True)
    np.testing.assert_array_equal(fake_quantize(rounded, found), rounded)
    assert (error(weight, rounded, moments) <= error(weight, fixed, moments)).all()


def test_new_ranges_need_blocks_along_the_inputs() -> None:
    weight, moments = problem(6)
    with pytest.raises(SpecError, match="blocks along the inputs"):
        gptq_matrix(weight, moments, parameters(weight, "int4", True, PerChannel(0)), act_order=False, recompute=True)
