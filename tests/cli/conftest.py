"""The command line in this process, the demo model with its data, and one finished run that tests may read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.cli.crash import INTERNAL_ERROR
from onnxq.demo import load_data, model_path

Run = Callable[..., Any]
"""Arguments of the command line -> result with exit_code, stdout and stderr."""


def invoke(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="onnxq")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception  # a bug, not an error that was reported
    if result.exit_code == INTERNAL_ERROR:
        raise result.exception.__context__.__cause__  # the bug behind the message
    return result


@pytest.fixture(scope="session")
def run() -> Run:
    return invoke


@pytest.fixture(scope="session")
def model() -> Path:
    return model_path()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "calibration.npz"
    np.savez(path, image=load_data().calibration[:16])
    return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, model: Path, data: Path) -> Path:
    """The folder of a run for onnxruntime, without improvements: what the single stages do as well."""
    folder = tmp_path_factory.mktemp("finished") / "out"
    result = invoke("quantize", model, "-b", "onnxruntime", "-d", data, "--effort", 0, "-o", folder, "--quiet")
    assert result.exit_code == 0, result.stderr
    return folder
