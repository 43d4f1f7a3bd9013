"""Shards of a calibration, run apart and merged, are the calibration: the same statistics and the same parameters."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.demo import load_data, model_path

SAMPLES = 20


def run(command: str, *more: object) -> Any:
    result = CliRunner().invoke(app, [*command.split(), *map(str, more)], prog_name="onnxq")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def good(command: str, *more: object) -> str:
    result = run(command, *more)
    assert result.exit_code == 0, result.stderr
    return str(result.stderr)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(model_path(), "model.onnx")
    images = load_data().calibration[:SAMPLES].copy()
    images[7] *= 9
    np.savez("data.npz", image=images)
    return tmp_path


COLLECT = "calibrate model.onnx -b onnxruntime -d data.npz --quiet -o"
STORED = "calibrate model.onnx -b onnxruntime --stats merged.npz --quiet -o"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_merged_shards_are_the_file_and_give_the_parameters_of_one_run(here: Path, count: int) -> None:
    good(f"{COLLECT} whole.npz")
    parts = [f"part-{number}.npz" for number in range(1, count + 1)]
    for number, part in enumerate(parts, 1):
        good(f"{COLLECT} {part} --shard {number}/{count}")
    good("merge -o merged.npz", *parts[::-1])
    assert Path("merged.npz").read_bytes() == Path("whole.npz").read_bytes()

    for observer in ("minmax", "kl"):
        good(f"{COLLECT} direct/qparams.json --observer {observer}")
        good(f"{STORED} stored/qparams.json --observer {observer}")
        for name in ("qparams.json", "plan.json"):
            assert Path("stored", name).read_bytes() == Path("direct", name).read_bytes()
    # With the data at hand the file is checked against it and used.
    good(f"{COLLECT} again/qparams.json --stats merged.npz --observer kl")
    assert Path("again/qparams.json").read_bytes() == Path("direct/qparams.json").read_bytes()
    assert Path("merged.npz").read_bytes() == Path("whole.npz").read_bytes()


def test_a_shard_is_no_whole_and_the_error_says_what_to_do(here: Path) -> None:
    good(f"{COLLECT} part.npz --shard 1/3")
    before = Path("part.npz").read_bytes()
    for command in (
        "calibrate model.onnx -b onnxruntime --stats part.npz -o q.json",
        f"{COLLECT} q.json --stats part.npz",
        "quantize model.onnx -b onnxruntime -d data.npz --stats part.npz -o out",
    ):
        result = run(command)
        assert result.exit_code == 2
        assert "part.npz" in result.stderr
        assert "shard 1" in result.stderr
    assert "'onnxq merge'" in run("calibrate model.onnx -b onnxruntime --stats part.npz -o q.json").stderr
    assert Path("part.npz").read_bytes() == before
    assert sorted(path.name for path in here.iterdir()) == ["data.npz", "model.onnx", "part.npz"]


def test_a_shard_continues_only_itself(here: Path) -> None:
    good(f"{COLLECT} part.npz --shard 1/3")
    result = run(f"{COLLECT} part.npz --shard 2/3")
    assert result.exit_code == 2
    assert "holds shard 1/3, and this run is for shard 2/3" in result.stderr


@pytest.mark.parametrize("observer", ["ema_minmax", "ema_mse"])
def test_observers_that_depend_on_the_order_are_refused_before_the_model_runs(
    here: Path, monkeypatch: pytest.MonkeyPatch, observer: str
) -> None:
    def run_anyway(*_: object) -> None:
        raise AssertionError("the model was run")

    monkeypatch.setattr("onnxq.runtime.buffers.BufferedTap.run", run_anyway)
    result = run(f"{COLLECT} part.npz --shard 1/2 --observer {observer}")
    assert result.exit_code == 2
    assert f"'{observer}'" in result.stderr
    assert "depends on the order of the samples" in result.stderr
    assert "such as minmax" in result.stderr
    assert not Path("part.npz").exists()


def test_more_shards_than_samples_is_an_error_of_the_empty_ones(here: Path) -> None:
    good(f"{COLLECT} part.npz --shard 2/3 --samples 2")
    result = run(f"{COLLECT} empty.npz --shard 3/3 --samples 2")
    assert result.exit_code == 2
    assert "none for shard 3/3: give at least 3 samples" in result.stderr
    assert not Path("empty.npz").exists()
