"""The roundings in torch against the one rounding function of numerics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onnxq.numerics import round_values
from onnxq.numerics.in_torch import round_in_place
from onnxq.types.spec import ROUNDINGS, Rounding


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(("dtype", "largest"), [(np.float32, 2**16), (np.float64, 2**31)])
def test_every_tie_and_its_neighbours_are_rounded_alike(rounding: Rounding, dtype: type, largest: int) -> None:
    rng = np.random.default_rng(0)
    ties = np.concatenate([np.arange(-600, 600) / 2, rng.integers(-2 * largest, 2 * largest, 2000) / 2]).astype(dtype)
    x = np.concatenate([ties, np.nextafter(ties, dtype(np.inf)), np.nextafter(ties, dtype(-np.inf))])
    x = np.concatenate([x, rng.uniform(-largest, largest, 2000).astype(dtype), dtype([1e-45, -1e-45, -0.0, np.nan])])
    found = round_in_place(torch.from_numpy(x.copy()), rounding).numpy()
    np.testing.assert_array_equal(found, round_values(x, rounding))
