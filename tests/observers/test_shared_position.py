"""One position for several tensors: errors in relation to each tensor's own energy."""

from __future__ import annotations

import numpy as np
import pytest

import onnxq
from onnxq.observers import make_observer
from onnxq.observers.minmax_floor import MinMaxFloor
from onnxq.types import QuantSpec
from tests.golden_graphs import GOLDEN

SPEC = QuantSpec("int8", power_of_two=True)


def shared_position(*tensors: np.ndarray) -> int:
    observer = make_observer("minmax_floor")
    assert isinstance(observer, MinMaxFloor)
    statistics = [observer.new_statistic() for _ in tensors]
    for statistic, tensor in zip(statistics, tensors, strict=True):
        statistic.update(tensor.astype(np.float32))
    _, high = observer.shared_range(statistics, SPEC)
    return int(-np.log2(float(high) / 127))


def cost(position: int, *tensors: np.ndarray) -> float:
    """The criterion, from the values themselves."""
    scale, total = 2.0**-position, 0.0
    for values in tensors:
        error = values - np.clip(np.rint(values / scale), -128, 127) * scale
        total += float(np.sum(error**2) / np.sum(values**2) / np.sqrt(values.size))
    return total


@pytest.mark.parametrize("seed", range(8))
def test_the_position_has_the_least_sum_of_relative_errors(seed: int) -> None:
    generator = np.random.default_rng(seed)
    large = np.abs(generator.laplace(0, 1, 16_000)) * generator.uniform(0.5, 4)
    small = large.reshape(-1, 16).mean(axis=1) * generator.uniform(0.1, 1)
    chosen = shared_position(large, small)
    costs = {position: cost(position, large, small) for position in range(chosen - 3, chosen + 4)}
    assert costs[chosen] <= 1.02 * min(costs.values())  # bins stand for the values


def test_an_average_is_not_outvoted_by_what_is_averaged() -> None:
    generator = np.random.default_rng(0)
    values = np.clip(generator.exponential(0.7, (2000, 16)), 0, 6)
    alone = shared_position(values.ravel())
    assert shared_position(values.ravel(), values.mean(axis=1) * 0.3) > alone


@pytest.mark.parametrize("backend", ["vitis", "ryzenai"])
@pytest.mark.parametrize(("graph", "least"), [("residual", 32), ("depthwise", 25)])
def test_pooled_networks_keep_their_accuracy(backend: str, graph: str, least: float, tmp_path: object) -> None:
    golden = GOLDEN[graph]()
    result = onnxq.quantize(
        golden.model,
        backend=backend,
        data=golden.samples,
        out=f"{tmp_path}/out",
        config={"effort": 0, "verify_samples": 8},  # those that the limits of this test were found with
    )
    assert min(result.report["sqnr_db"].values()) > least
