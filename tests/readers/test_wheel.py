"""The wheel in empty environments: the part in C is loaded, and the demo runs, outside of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnxq
from tools.readers.environments import ReaderError, find_python
from tools.wheel import PYTHONS, build, check

pytestmark = pytest.mark.readers


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.mark.parametrize("python", PYTHONS)
def test_the_demo_runs_in_an_empty_environment(wheel: Path, python: str) -> None:
    try:
        find_python(python)
    except ReaderError as error:
        pytest.skip(str(error))
    assert check(wheel, python) == onnxq.__version__
