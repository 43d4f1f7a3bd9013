"""Samples that a model was called with, kept on disk until they are calibrated on."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from onnxq.temporary import OwnedFolder


class Spool:
    """A temporary folder with one file for each sample; it is removed together with this object."""

    def __init__(self) -> None:
        self._folder = OwnedFolder()
        self.folder.mkdir()
        self.count = 0

    @property
    def folder(self) -> Path:
        """A folder that `onnxq.quantize` takes as calibration data; the samples are in the order of the calls."""
        return self._folder.path / "samples"

    def add(self, feed: Mapping[str, np.ndarray]) -> None:
        # numpy.savez takes names as arguments of its own, and an input may be called like one of them.
        with zipfile.ZipFile(self._file(self.count), "w") as archive:
            for name, array in feed.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, _storable(array), allow_pickle=False)
        self.count += 1

    def drop_last(self) -> None:
        """Forget the newest sample: the model could not compute it."""
        self.count -= 1
        self._file(self.count).unlink()

    def twin(self) -> Spool:
        """Another one with the same samples, which goes its own way."""
        found = Spool()
        for number in range(self.count):
            shutil.copyfile(self._file(number), found._file(number))
        found.count = self.count
        return found

    def close(self) -> None:
        self._folder.remove()
        self.count = 0

    def _file(self, number: int) -> Path:
        return self.folder / f"sample_{number:09d}.npz"


def _storable(array: np.ndarray) -> np.ndarray:
    """Text comes as objects, which files hold as strings of one length."""
    return array.astype(str) if array.dtype.kind == "O" else array
