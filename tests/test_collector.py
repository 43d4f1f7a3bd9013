"""The garbage collector is held back, and left as it was found."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.collector import ALLOCATIONS_PER_COLLECTION, collector_paused, collector_relaxed
from tools.bench.models import residual_chain


@pytest.fixture(autouse=True)
def usual_threshold() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_a_relaxed_collector_runs_seldom_and_then_as_before() -> None:
    with collector_relaxed():
        assert gc.get_threshold() == (ALLOCATIONS_PER_COLLECTION, 10, 10)
        assert gc.isenabled()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("threshold", [0, 2 * ALLOCATIONS_PER_COLLECTION])
def test_who_collects_less_already_goes_on_with_that(threshold: int) -> None:
    gc.set_threshold(threshold, 10, 10)
    with collector_relaxed(), collector_paused():
        assert not gc.isenabled()
        assert gc.get_threshold()[0] == threshold
    assert gc.isenabled()


def test_a_run_collects_a_few_times_where_python_would_hundreds_of_times(tmp_path: Path) -> None:
    onnx.save(residual_chain(200), str(tmp_path / "chain.onnx"))
    sample = {"input": np.zeros((1, 4, 4, 4), np.float32)}
    collections = []
    gc.callbacks.append(lambda phase, info: collections.append(phase))
    try:
        config = {"effort": 0, "minimum_sqnr_db": -100.0}
        onnxq.quantize(tmp_path / "chain.onnx", backend="tensorrt", data=[sample], out=tmp_path / "out", config=config)
    finally:
        gc.callbacks.pop()

    assert len(collections) < 50
