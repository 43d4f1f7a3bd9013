"""The mean of a clipped normal distribution, against numerical integration and known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.ptq.bias_correction.clipped_normal import clipped_mean


def integrated(mean: float, deviation: float, low: float, high: float) -> float:
    z = np.linspace(-9, 9, 200_001)
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return float(np.trapezoid(np.clip(mean + deviation * z, low, high) * density, z))


@given(st.floats(-5, 5), st.floats(0.01, 4), st.sampled_from([(0, math.inf), (0, 6), (-1, 1), (-math.inf, 2)]))
@settings(max_examples=40, deadline=None)
def test_it_is_what_integration_gives(mean: float, deviation: float, ends: tuple[float, float]) -> None:
    found = clipped_mean(np.array([mean]), np.array([deviation]), *ends)
    assert found[0] == pytest.approx(integrated(mean, deviation, *ends), abs=1e-6)


def test_relu_of_a_standard_normal() -> None:
    assert clipped_mean(np.zeros(1), np.ones(1), 0.0)[0] == pytest.approx(1 / math.sqrt(2 * math.pi))


def test_without_ends_and_without_variation() -> None:
    np.testing.assert_allclose(clipped_mean(np.array([1.5, -2.0]), np.array([3.0, 0.0])), [1.5, -2.0])
    np.testing.assert_allclose(clipped_mean(np.array([-2.0, 7.0]), np.zeros(2), 0.0, 6.0), [0.0, 6.0])


def test_the_sign_of_gamma_does_not_matter() -> None:
    np.testing.assert_allclose(clipped_mean(np.array([0.3]), np.array([-2.0]), 0.0), clipped_mean(0.3, 2.0, 0.0))
