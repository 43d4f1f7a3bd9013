"""Coordinate descent on matrices: on the grid, never further away than it began, and at rest where it ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.ptq.weights import coordinate_descent
from onnxq.ptq.weights.coordinate_descent import descend
from onnxq.ptq.weights.gptq_matrix import Grid, gptq_stack, output_errors
from onnxq.ptq.weights.matrices import view_of_rows
from tests.ptq.weights.test_gptq_matrix import FORMATS, parameters, problem


@pytest.mark.parametrize(("dtype", "symmetric", "granularity"), FORMATS, ids=str)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_the_error_never_grows_and_numbers_stay_on_the_grid(dtype, symmetric, granularity, seed: int) -> None:
    weight, moments = problem(seed)
    grid = Grid.of(parameters(weight, dtype, symmetric, granularity), view_of_rows(weight.shape))
    for start in (grid.nearest(weight[None]), gptq_stack(weight[None], moments[None], grid)):
        found = descend(weight[None], moments[None], start, grid, sweeps=4)
        np.testing.assert_array_equal(found, grid.nearest(found))
        before, after = (output_errors(weight - numbers, moments[None]) for numbers in (start, found))
        assert (after <= before * (1 + 1e-9)).all()


def test_no_single_number_can_be_changed_for_the_better_at_the_end() -> None:
    weight, moments = problem(3, outputs=4, inputs=12)
    qparams = parameters(weight, *FORMATS[1])
    grid = Grid.of(qparams, view_of_rows(weight.shape))
    found = descend(weight[None], moments[None], grid.nearest(weight[None]), grid, sweeps=1000)
    least = output_errors(weight - found, moments[None])
    for column in range(weight.shape[1]):
        for sign in (-1, 1):
            other = found.copy()
            other[0, :, column] += sign * qparams.scale
            other = grid.nearest(other)
            assert (output_errors(weight - other, moments[None]) >= least * (1 - 1e-9)).all()


def test_it_goes_on_where_gptq_ends() -> None:
    gains = []
    for seed in range(10):
        weight, moments = problem(seed, outputs=16, inputs=40)
        grid = Grid.of(parameters(weight, *FORMATS[0]), view_of_rows(weight.shape))
        rounded = gptq_stack(weight[None], moments[None], grid)
        found = descend(weight[None], moments[None], rounded, grid, sweeps=4)
        gains.append(
            output_errors(weight - found, moments[None]).sum() / output_errors(weight - rounded, moments[None]).sum()
        )
    assert max(gains) <= 1 + 1e-9
    assert np.mean(gains) < 0.995


def test_blocks_of_columns_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, moments = problem(5, outputs=8, inputs=30)
    grid = Grid.of(parameters(weight, *FORMATS[0]), view_of_rows(weight.shape))
    start = grid.nearest(weight[None])
    whole = descend(weight[None], moments[None], start, grid, sweeps=3)
    monkeypatch.setattr(coordinate_descent, "COLUMNS", 7)
    np.testing.assert_array_equal(descend(weight[None], moments[None], start, grid, sweeps=3), whole)


def test_inputs_that_are_always_zero_leave_their_numbers_alone() -> None:
    weight, moments = problem(6)
    moments[:, 4] = moments[4, :] = 0.0
    grid = Grid.of(parameters(weight, *FORMATS[1]), view_of_rows(weight.shape))
    start = grid.nearest(weight[None])
    found = descend(weight[None], moments[None], start, grid, sweeps=2)
    np.testing.assert_array_equal(found[..., 4], start[..., 4])
