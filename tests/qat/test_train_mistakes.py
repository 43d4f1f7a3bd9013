"""Mistakes of a user while training end in one sentence, and leave nothing behind that looks like a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.errors import CheckFailed, ConfigError, DataError
from onnxq.qat.loop import train
from onnxq.qat.training_data import open_training_data
from onnxq.runtime import input_infos
from onnxq.user_code import find_function
from tests.qat.test_train_loop import accuracy
from tests.qat.toy_net import toy_data, toy_graph, toy_net

LOSSES = """
import torch

def without_gradient(outputs, labels):
    return torch.tensor(1.0)

def never_a_number(outputs, labels):
    return outputs["y"].sum() * float("nan")
"""


def _trained(folder: Path, **settings: Any) -> None:
    net = toy_net()
    train(net, toy_data(), {"epochs": 2, "batch_size": 10, **settings}, evaluate=accuracy(net), folder=folder)


@pytest.mark.parametrize("content", [b"no archive", b"PK\x03\x04 cut off", b""])
def test_a_damaged_file_of_arrays_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "train.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read '.*train\.npz'"):
        open_training_data(path, input_infos(toy_graph()))


def test_a_file_of_arrays_that_ends_too_early_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.npz"
    np.savez(path, **toy_data(600))
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DataError, match="cannot read"):
        open_training_data(path, input_infos(toy_graph()))


@pytest.mark.parametrize("content", [b"junk\n", b"", b"\x80\x02", b"PK\x03\x04"])
def test_a_damaged_checkpoint_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "step-00000004.pt").write_bytes(content)
    net = toy_net()
    with pytest.raises(ConfigError, match="is no readable checkpoint"):
        train(net, toy_data(), {"epochs": 1}, folder=tmp_path, resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_a_file_is_no_folder_for_checkpoints(resume: bool, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ConfigError, match="taken is a file: choose a folder"):
        train(toy_net(), toy_data(), {"epochs": 1}, folder=tmp_path / "taken", resume=resume)


def test_a_loss_of_the_users_without_a_gradient_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(LOSSES)
    with pytest.raises(ConfigError, match="without a gradient"):
        _trained(tmp_path / "kept", label_loss=f"{tmp_path}/own.py:without_gradient")
    assert not (tmp_path / "kept").exists()


def test_no_checkpoints_are_promised_where_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(LOSSES)
    with pytest.raises(CheckFailed, match="the loss is nan in step 1") as raised:
        _trained(tmp_path / "kept", label_loss=f"{tmp_path}/own.py:never_a_number")
    assert "checkpoints" not in str(raised.value)
    assert not (tmp_path / "kept").exists()


def test_a_function_that_wants_arguments_is_no_fault_in_a_file_of_onnxq(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def data(path):\n    return path\n")
    with pytest.raises(DataError, match="missing 1 required positional argument") as raised:
        open_training_data(f"{tmp_path}/own.py:data", input_infos(toy_graph()))
    assert "training_data.py" not in str(raised.value)


def test_a_file_that_is_not_there_is_called_by_what_it_is_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no training data file at"):
        find_function(f"{tmp_path}/none.py:data", "training data")
