"""Second moments of few rows: covariances that are chance count less, variances and means as they are."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.ptq.weights.moments import Moments
from onnxq.ptq.weights.paired_moments import PairedMoments
from onnxq.ptq.weights.shrinkage import shrunk


def rows(count: int, columns: int, seed: int) -> np.ndarray:
    """Rows of one group with a common factor and a mean."""
    random = np.random.default_rng(seed)
    common = random.normal(size=(1, count, 1)) * np.linspace(0.2, 1, columns)
    return 0.5 + common + random.normal(size=(1, count, columns))


def moments(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(1, 2) @ x / x.shape[1]


def test_variances_and_means_stay_and_many_rows_change_nothing() -> None:
    x = rows(100_000, 8, 0)
    plain, mean = moments(x), x.mean(1)
    few = shrunk(plain, mean, mean, 4)
    np.testing.assert_array_equal(np.diagonal(few[0]), np.diagonal(plain[0]))
    products = mean[0][:, None] * mean[0]
    covariance = plain[0] - products
    others = ~np.eye(8, dtype=bool)
    np.testing.assert_allclose(
        (few[0] - products)[others], covariance[others] / 2
    )  # half as many rows as columns: half
    np.testing.assert_allclose(shrunk(plain, mean, mean, x.shape[1]), plain, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("count", [16, 64, 128])
def test_no_change_of_a_weight_looks_free_that_is_not(count: int) -> None:
    """The change that few rows believe to cost least is the one that roundings make use of first."""
    columns = 64
    truth = moments(rows(200_000, columns, 1))[0]
    x = rows(count, columns, 2)
    plain, mean = moments(x), x.mean(1)
    found = shrunk(plain, mean, mean, count)[0]
    _, directions = np.linalg.eigh(plain[0])
    change = directions[:, 0]
    costs = change @ truth @ change
    assert change @ plain[0] @ change < 0.2 * costs
    assert 0.3 * costs < change @ found @ change < 3 * costs


def test_two_models_are_shrunk_alike() -> None:
    x, y = rows(32, 12, 3), rows(32, 12, 4)
    mixed = x.swapaxes(1, 2) @ y / 32
    found = shrunk(mixed, x.mean(1), y.mean(1), 32)
    products = x.mean(1)[0][:, None] * y.mean(1)[0]
    others = ~np.eye(12, dtype=bool)
    np.testing.assert_allclose((found[0] - products)[others], (mixed[0] - products)[others] * 32 / 38)


def test_sums_of_groups_are_kept_apart_and_centring_follows() -> None:
    """What gptq and gptaq make of rows that come sample by sample, against numpy on all of them."""
    x, y = (np.concatenate([rows(40, 6, seed + group) for group in range(3)]) * 2 for seed in (5, 15))
    alone, paired = Moments(3, 6), PairedMoments()
    for part in range(0, 40, 8):
        alone.add(x[:, part : part + 8])
        paired.add(x[:, part : part + 8], y[:, part : part + 8])
    np.testing.assert_allclose(alone.sums / alone.count, x.mean(1), rtol=1e-5)
    own, mixed = paired.matrices(centred=True)
    kept = 40 / (40 + 3)
    for group in range(3):
        both = np.cov(x[group].T, y[group].T, bias=True)
        for found, whole in ((own[group], both[6:, 6:]), (mixed[group], both[:6, 6:])):
            expected = np.where(np.eye(6, dtype=bool), whole, kept * whole)
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    plain, _ = paired.matrices(centred=False)
    np.testing.assert_allclose(plain - own, y.mean(1)[:, :, None] * y.mean(1)[:, None, :], rtol=1e-4, atol=1e-4)
