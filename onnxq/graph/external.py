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

_LONGEST_LOCATION = 4096
"""Bytes of a path that systems take at most."""


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
            raise ModelError(
                f"external data of tensor '{tensor.name}' has an offset or a length that is not a number; "
                "export the model again"
            ) from None
        if offset < 0 or (length is not None and length < 0):
            raise ModelError(
                f"external data of tensor '{tensor.name}' has the offset {offset} and the length {length}; neither "
                "can be negative. Export the model again"
            )
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
        if "\0" in location or len(os.fsencode(location)) > _LONGEST_LOCATION:
            raise ModelError(
                f"tensor '{tensor}' wants external data from {location[:60]!r}"
                f"{'...' if len(location) > 60 else ''}, which cannot be the name of a file: it holds a NUL "
                f"character or is longer than {_LONGEST_LOCATION} bytes. The file is damaged; export the model again"
            )
        paths = [Path(os.path.realpath(folder / location)) for folder in self._folders]
        allowed = [path for path in paths if any(path.is_relative_to(folder) for folder in self._folders)]
        if os.path.isabs(location) or not allowed:
            raise ModelError(
                f"tensor '{tensor}' wants external data from '{location}', which is outside the model's folder "
                f"{self._folders[0]}; such files are refused because a model must not read other files. "
                "Copy the data beside the model and correct its location"
            )
        for path in allowed:
            if os.path.isfile(path):  # False, where pathlib raises, for a part of the name that is too long
                return path
        if os.path.exists(allowed[0]):
            raise ModelError(
                f"external data of tensor '{tensor}' is said to be in {allowed[0]}, which is not a file: "
                "correct its location, or export the model again"
            )
        raise ModelError(
            f"external data file {allowed[0]} of tensor '{tensor}' does not exist; copy it beside the model"
        )
