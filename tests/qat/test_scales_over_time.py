"""scales.csv: where the scales of a training were, from those of calibration to those of the file."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onnxq.demo import load_data
from onnxq.errors import ConfigError
from onnxq.page.content import further_json
from onnxq.qat.checkpoint import Checkpoints
from onnxq.qat.history import Training
from onnxq.qat.loop import train
from onnxq.qat.net import QatNet
from onnxq.qat.scales import MOST_MOMENTS, ScaleCourse
from tests.qat.digits_qat import prepared

LEARNT = {"activation": {"fake_quantizer": "lsq"}, "weight": {"fake_quantizer": "fixed"}}
QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 16, "lr": 0.01}


def learnt() -> QatNet:
    return prepared("academic", LEARNT)


def data() -> dict[str, np.ndarray]:
    found = load_data()
    return {"image": found.train_images[:48], "labels": found.train_labels[:48]}


def rows_of(training: Training, folder: Path) -> list[dict[str, float]]:
    training.write(folder)
    with (folder / "scales.csv").open(newline="") as stream:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(stream)]


def mean(scale: np.ndarray) -> float:
    return float(np.exp(np.log(scale.astype(np.float64)).mean()))


def test_scales_go_from_those_of_calibration_to_those_of_the_net(tmp_path: Path) -> None:
    net = learnt()
    before = {name: mean(net.calibrated.state.qparams[name].scale) for name in net.fake_quantizers}
    rows = rows_of(train(net, data(), QUICK), tmp_path)
    after = {name: mean(module.to_qparams().scale) for name, module in net.fake_quantizers.items()}
    tensors = [name for name in rows[0] if name != "step"]
    assert [row["step"] for row in rows] == list(range(7))
    assert set(tensors) == {name for name in net.fake_quantizers if net.plan[name].derive is None}
    for name in tensors:
        assert rows[0][name] == pytest.approx(before[name], rel=1e-5)
        assert rows[-1][name] == pytest.approx(after[name], rel=1e-5)
    moved = {name for name in tensors if rows[0][name] != rows[-1][name]}
    assert moved
    assert all(net.plan[name].role != "weight" for name in moved)  # they are fixed


def test_a_training_that_goes_on_has_the_scales_of_before(tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(moment: Any) -> None:
        if moment.step == 4:
            raise Stopped

    with pytest.raises(Stopped):
        train(learnt(), data(), {**QUICK, "checkpoint_every": 1}, folder=tmp_path, progress=stop)
    resumed = train(learnt(), data(), {**QUICK, "checkpoint_every": 1}, folder=tmp_path, resume=True)
    whole = train(learnt(), data(), QUICK)
    assert resumed.scales == whole.scales
    assert resumed.scales.steps == list(range(7))


def test_scales_of_other_tensors_are_no_part_of_a_checkpoint(tmp_path: Path) -> None:
    train(learnt(), data(), QUICK, folder=tmp_path)
    newest = max(tmp_path.glob("step-*.pt"))
    state = torch.load(newest, weights_only=True)
    torch.save({**state, "scales": {**state["scales"], "tensors": [], "rows": [[]] * 7}}, newest)
    with pytest.raises(ConfigError, match="scales are those of other tensors"):
        train(learnt(), data(), QUICK, folder=tmp_path, resume=True)
    torch.save({name: value for name, value in state.items() if name != "scales"}, newest)  # as 0.2.0 wrote it
    assert train(learnt(), data(), QUICK, folder=tmp_path, resume=True).scales.steps == [6]


def test_rows_of_another_length_are_refused(tmp_path: Path) -> None:
    train(learnt(), data(), QUICK, folder=tmp_path)
    newest = max(tmp_path.glob("step-*.pt"))
    state = torch.load(newest, weights_only=True)
    torch.save({**state, "scales": {**state["scales"], "rows": [[0.5]]}}, newest)
    with pytest.raises(ConfigError, match="a row for each of its steps"):
        Checkpoints(tmp_path, {}).newest()


def test_a_long_training_has_few_moments() -> None:
    net = learnt()
    course = ScaleCourse.of(net, 10_000)
    taken = [step for step in range(10_001) if course.due(step)]
    assert 50 < len(taken) <= MOST_MOMENTS
    assert replace(course, every=1).due(7)


def test_the_page_begins_with_scales_that_moved_most(tmp_path: Path) -> None:
    (tmp_path / "scales.csv").write_text('step,still,"a, b",nan\n0,0.5,0.1,nan\n5,0.5,0.2,nan\n10,0.5,0.05,0.1\n')
    assert further_json(tmp_path)["scales"] == {
        "step": [0.0, 5.0, 10.0],
        "tensors": {"a, b": [0.1, 0.2, 0.05], "still": [0.5, 0.5, 0.5], "nan": [None, None, 0.1]},
        "count": 3,
    }
