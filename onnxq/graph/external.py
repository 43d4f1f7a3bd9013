"""Where external data may live: inside the model's own folder, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

from onnx import TensorProto

from onnxq.errors import ModelError
from onnxq.graph.values import ExternalFile, ExternalValues


class ExternalFiles:
    """The external-data files of one model; paths are fixed at construction, whatever the current directory does."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else Path(os.path.realpath(folder))
        self._files: dict[str, ExternalFile] = {}

    def values(self, tensor: TensorProto) -> ExternalValues:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if location not in self._files:
            self._files[location] = ExternalFile(self._resolve(location, tensor.name))
        try:
            offset = int(entries.get("offset", 0))
            length = int(entries["length"]) if "length" in entries else None
        except ValueError:
            raise ModelError(f"external data of tensor '{tensor.name}' has a malformed offset or length") from None
        return ExternalValues(tensor, self._files[location], offset, length)

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
