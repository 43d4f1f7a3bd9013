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
    """The external-data files of one model; paths are fixed at construction, whatever the current directory does.

    `model` is the model's file. Where it is a link, its data may lie beside the link or beside the file it leads to.
    """

    def __init__(self, model: Path | None) -> None:
        places = [] if model is None else [os.path.realpath(model.parent), os.path.dirname(os.path.realpath(model))]
        self._folders = [Path(place) for place in dict.fromkeys(places)]
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
        if not self._folders:
            raise ModelError(
                f"tensor '{tensor}' has external data ('{location}'), but the model was not read from a file; "
                "load it by its path instead"
            )
        if not location:
            raise ModelError(f"tensor '{tensor}' has external data without a location")
        paths = [Path(os.path.realpath(folder / location)) for folder in self._folders]
        allowed = [path for path in paths if any(path.is_relative_to(folder) for folder in self._folders)]
        if os.path.isabs(location) or not allowed:
            raise ModelError(
                f"tensor '{tensor}' wants external data from '{location}', which is outside the model's folder "
                f"{self._folders[0]}; such files are refused because a model must not read other files. "
                "Copy the data beside the model and correct its location"
            )
        for path in allowed:
            if path.is_file():
                return path
        raise ModelError(f"external data file {allowed[0]} of tensor '{tensor}' does not exist")
