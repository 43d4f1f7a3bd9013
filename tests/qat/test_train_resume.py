"""A training that was killed goes on from its checkpoint and ends with the same bits; other trainings are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onnxq.errors import ConfigError
from onnxq.qat.loop import train
from tests.qat.test_train_loop import accuracy, assert_same, state_of
from tests.qat.toy_net import toy_data, toy_net

SETTINGS: dict[str, Any] = {"epochs": 6, "batch_size": 10, "lr": 0.02, "checkpoint_every": 4, "clip_gradient": 1.0}

KILLED = """
import signal, sys
from tests.qat.test_train_resume import SETTINGS
from tests.qat.test_train_loop import accuracy
from tests.qat.toy_net import toy_data, toy_net
from onnxq.qat.loop import train

def wait_to_be_killed(moment):
    if moment.step == 18:
        signal.pause()

net = toy_net()
train(net, toy_data(), SETTINGS, evaluate=accuracy(net), folder=sys.argv[1], progress=wait_to_be_killed)
"""


class Stopped(Exception):
    pass


def trained(folder: Path | None, *, resume: bool = False, until: int | None = None, **changed: Any) -> dict[str, Any]:
    net = toy_net()

    def stop(moment: Any) -> None:
        if moment.step == until:
            raise Stopped

    settings = {**SETTINGS, **changed}
    train(net, toy_data(), settings, evaluate=accuracy(net), folder=folder, resume=resume, progress=stop)
    return state_of(net)


@pytest.mark.parametrize("until", [3, 4, 9, 12, 35])
def test_a_training_that_was_cut_off_ends_with_the_same_bits(until: int, tmp_path: Path) -> None:
    whole = trained(None)
    with pytest.raises(Stopped):
        trained(tmp_path, until=until)
    assert_same(trained(tmp_path, resume=True), whole)
    assert_same(trained(tmp_path, resume=True), whole)  # there is nothing left to do


def test_a_killed_process_leaves_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], env=environment)
    try:
        while not (folder / "step-00000016.pt").exists():
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert_same(trained(folder, resume=True), trained(None))


def test_the_course_goes_on_too(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        trained(tmp_path, until=9)
    net, other = toy_net(), toy_net()
    resumed = train(net, toy_data(), SETTINGS, evaluate=accuracy(net), folder=tmp_path, resume=True)
    whole = train(other, toy_data(), SETTINGS, evaluate=accuracy(other))
    assert resumed.rows == whole.rows
    assert (resumed.best.value, resumed.best.step) == (whole.best.value, whole.best.step)


def test_the_last_two_and_the_best_are_kept(tmp_path: Path) -> None:
    trained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.pt", "step-00000032.pt", "step-00000036.pt"]


def test_checkpoints_hold_no_code(tmp_path: Path) -> None:
    trained(tmp_path)
    for path in tmp_path.iterdir():
        torch.load(path, weights_only=True)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"lr": 0.01}, "settings: lr was 0.02 and is 0.01"), ({"epochs": 7}, "settings: epochs was 6 and is 7")],
)
def test_a_checkpoint_of_other_settings_is_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        trained(tmp_path, until=9)
    with pytest.raises(ConfigError, match=said):
        trained(tmp_path, resume=True, **changed)


def test_a_checkpoint_of_another_network_or_other_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        trained(tmp_path, until=9)
    with pytest.raises(ConfigError, match="the network before training is another"):
        train(toy_net(scale=0.5), toy_data(), SETTINGS, folder=tmp_path, resume=True)
    with pytest.raises(ConfigError, match="data: samples was 60 and is 50"):
        train(toy_net(), toy_data(50), SETTINGS, folder=tmp_path, resume=True)


def test_a_new_training_does_not_write_over_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        trained(tmp_path, until=9)
    with pytest.raises(ConfigError, match="--resume"):
        trained(tmp_path)


def test_what_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "step-00000004.pt").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match=r"step-00000004\.pt is no readable checkpoint"):
        trained(tmp_path, resume=True)


def test_resuming_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    assert_same(trained(tmp_path / "none", resume=True), trained(None))
    with pytest.raises(ConfigError, match="no folder with checkpoints"):
        trained(None, resume=True)
    assert np.isfinite(trained(None)["first.weight"]).all()
