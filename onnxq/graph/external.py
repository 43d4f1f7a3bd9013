"""Where external data may live: inside the model's own folder, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

from onnx import TensorProto

from onnxq.errors import ModelError
from onnxq.graph.data_file import DataFile
from onnxq.graph.values import ExternalValues

_KEPT_OPEN = 64
"""Data files of one model that are held open; descriptors are a limited resource."""


class ExternalFiles:
    """The external-data files of one model; paths are fixed at construction, whatever the current directory does."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else Path(os.path.realpath(folder))
        self._files: dict[Path, DataFile] = {}

    @property
    def used(self) -> bool:
        """Whether any tensor has external data."""
        return bool(self._files)

    def values(self, tensor: TensorProto) -> ExternalValues:
        """The values of a tensor that announces external data."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        path = self._resolve(entries.get("location", ""), tensor.name)
        if path not in self._files:
            self._files[path] = DataFile(path, keep_open=len(self._files) < _KEPT_OPEN)
        try:
            offset = int(entries.get("offset", 0))
            length = int(entries["length"]) if "length" in entries else None
        except ValueError:
            raise ModelError(f"external data of tensor '{tensor.name}' has a malformed offset or length") from None
        if tensor.data_type == TensorProto.STRING:
            raise ModelError(f"tensor '{tensor.name}' holds strings, which ONNX does not allow in external data")
        return ExternalValues(tensor, self._files[path], offset, length)

    def _resolve(self, location: str, tensor: str) -> Path:
        if self._folder is None:
            raise ModelError(
                f"tensor '{tensor}' has external data ('{location}'), but the model was not read from a file; "
                "load it by its path instead"
            )
        if not location:
            raise ModelError(f"tensor '{tensor}' has external data without a location")
        path = Path(os.path.realpath(self._folder / location))
        if os.path.isabs(location) or not path.is_relative_to(self._folder):
            raise ModelError(
                f"tensor '{tensor}' wants external data from '{location}', which is outside the model's folder "
                f"{self._folder}; such files are refused because a model must not read other files. "
                "Copy the data beside the model and correct its location"
            )
        if not path.is_file():
            raise ModelError(f"external data file {path} of tensor '{tensor}' does not exist")
        return path
