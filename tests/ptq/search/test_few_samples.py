"""With few samples an effort tries less, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import onnxq
from onnxq.ptq.method import FOR_EACH_CHANNEL, read_improvement
from onnxq.ptq.search.schedule import schedule_of
from tests.zoo import ZOO

CHANNEL_STEPS = {"smoothquant", "insert_smoothing", "awq", "cross_layer_equalization"}


def steps_with(samples: int, out: Path, **config: Any) -> dict[str, str]:
    """Name of each step that is in the report -> what became of it."""
    case = ZOO["gemm_bias_1"]()
    rng = np.random.default_rng(0)
    (name, first), *_ = case.feeds[0].items()
    data = [{name: rng.normal(0, 1, first.shape).astype(np.float32)} for _ in range(samples)]
    result = onnxq.quantize(case.model, backend="onnxruntime", data=data, out=out, config=config)
    return {step["name"]: step["why"] for step in result.report["improvements"]["steps"]}


def test_steps_that_find_a_number_for_each_channel_are_not_tried_with_few_samples(tmp_path: Path) -> None:
    told = steps_with(8, tmp_path / "out", effort=1)
    untried = {name.partition(":")[0] for name, why in told.items() if why.startswith("not tried")}
    assert untried == CHANNEL_STEPS & {name.partition(":")[0] for name in schedule_of(1).names()}
    assert untried
    assert all("takes 16 samples, and there are 8" in why for why in told.values() if why.startswith("not tried"))
    assert "weight_scale_search" in told


def test_what_is_asked_for_by_name_is_tried_with_few_samples(tmp_path: Path) -> None:
    told = steps_with(8, tmp_path / "out", improvements=["smoothquant"])
    assert told
    assert not any(why.startswith("not tried") for why in told.values())


def test_enough_samples_try_everything(tmp_path: Path) -> None:
    told = steps_with(FOR_EACH_CHANNEL, tmp_path / "out", effort=1)
    assert not any(why.startswith("not tried") for why in told.values())


def test_the_steps_that_take_many_samples_are_those_of_the_efforts() -> None:
    taking = {name.partition(":")[0] for name in schedule_of(3).names() if read_improvement(name).method.least_samples}
    assert taking == CHANNEL_STEPS
