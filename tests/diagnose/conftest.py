"""One ill model that tests may read: heads of boxes and scores with one scale, by its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from onnxq.config.toml_text import write_toml
from tools.illnesses import ILLNESSES, Patient


class Files(NamedTuple):
    model: Path
    data: Path
    config: Path


TIED = next(illness for illness in ILLNESSES if illness.name == "shared scale of two heads")


@pytest.fixture(scope="session")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Patient:
    return TIED.ill(tmp_path_factory.mktemp("tied"))


@pytest.fixture(scope="session")
def tied_files(tied: Patient, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("files")
    files = Files(folder / "heads.onnx", folder / "images.npz", folder / "tied.toml")
    tied.model.save(files.model)
    np.savez(files.data, image=tied.data)
    write_toml(files.config, {"backend": TIED.backend, **tied.config})
    return files
