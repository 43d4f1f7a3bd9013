"""Half-quadratic parameters: the error of no cell grows, for every format; symmetric 4-bit weights gain on a model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.errors import ConfigError
from onnxq.numerics import fake_quantize
from onnxq.ptq.weights.cells import cell_ranges, qparams_of_cells, reduce_cells, spread
from onnxq.ptq.weights.hqq import hqq_tensor
from onnxq.types import QuantSpec
from tests.ptq.calibrated import digits, improved, weights
from tests.ptq.weights.test_scale_search import SPECS, weight_of


@given(st.integers(0, 2**32 - 2), st.sampled_from(SPECS), st.sampled_from([0.4, 0.7, 1.0]))
@settings(max_examples=50, deadline=None)
def test_no_cell_has_a_larger_error(seed: int, spec: QuantSpec, p: float) -> None:
    values = weight_of(seed)
    held = qparams_of_cells(*cell_ranges(values, spec.granularity), spec)
    found = hqq_tensor(values, held, p=p, iterations=8)
    step = spread(held.scale, spec.granularity, values.shape)
    before, after = (
        reduce_cells(np.abs((values - fake_quantize(values, each)) / step).astype(float) ** p, spec.granularity, np.add)
        for each in (held, found)
    )
    assert (after <= before * (1 + 1e-12)).all()
    assert found.spec == spec
    if spec.power_of_two:
        np.testing.assert_array_equal(np.log2(found.scale) % 1, 0)


def test_a_zero_point_that_is_off_is_found_again() -> None:
    spec = QuantSpec("uint4", symmetric=False)
    rng = np.random.default_rng(0)
    values = (0.5 * (rng.integers(0, 16, (8, 8)) - 9)).astype(np.float32)
    held = qparams_of_cells(np.asarray(-4.5), np.asarray(3.0), spec)
    assert (held.scale, held.zero_point) == (0.5, 9)
    wrong = type(held)(spec, held.scale, held.zero_point + 2)  # the largest numbers are clipped
    assert np.abs(values - fake_quantize(values, wrong)).max() > 0
    found = hqq_tensor(values, wrong)
    assert found == held


def test_symmetric_weights_of_four_bits_gain() -> None:
    model = digits("academic:w_bits=4")
    found = improved("hqq", "academic:w_bits=4")
    assert len(found.changed) == len(weights(model.state)) == 7
    assert model.sqnr(found.state) > model.sqnr() + 1.0
    for name in weights(model.state):
        np.testing.assert_array_equal(found.state.graph.values(name), model.state.graph.values(name))


def test_logarithmic_numbers_are_declined() -> None:
    found = digits("nnie").improve("hqq")
    assert found.changed == ()
    assert len(found.declined) == 7


@pytest.mark.parametrize("arguments", ["p=0", "p=1.5", "iterations=0"])
def test_wrong_arguments_are_refused(arguments: str) -> None:
    with pytest.raises(ConfigError, match=arguments.partition("=")[0]):
        digits("tensorrt").improve(f"hqq:{arguments}")
