"""Where the values of a tensor go when a model is written: into the protobuf, into a data file, or nowhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import BinaryIO

import numpy as np
from onnx import TensorProto

from onnxq.graph.element_types import onnx_dtype
from onnxq.graph.values import ExternalValues, LazyValues, ProtoValues, load_values, raw_chunks

_EXTERNAL_FROM_BYTES = 1024
_ALIGNMENT = 64

StoreTensor = Callable[[TensorProto, "np.ndarray | LazyValues"], None]
"""Puts the values into (or beside) a TensorProto that has its name, type and dims already."""


def fill_tensor(proto: TensorProto, name: str, values: np.ndarray | LazyValues, store: StoreTensor) -> None:
    """Write one tensor; doc string and metadata follow values that came from a file."""
    if name:
        proto.name = name
    proto.dims.extend(values.shape)
    proto.data_type = onnx_dtype(values.dtype)
    origin = values.tensor if isinstance(values, LazyValues) else None
    if origin is not None:
        if origin.doc_string:
            proto.doc_string = origin.doc_string
        if origin.metadata_props:
            proto.metadata_props.extend(origin.metadata_props)
    store(proto, values)


_STORED_AS_THEY_ARE = "?bBhHiIlLqQfd" if sys.byteorder == "little" else ""
"""numpy's types whose bytes in memory are those of a file."""


def store_inline(proto: TensorProto, values: np.ndarray | LazyValues) -> None:
    """All values inside the protobuf."""
    if isinstance(values, ProtoValues) and values.tensor.HasField("raw_data"):
        proto.raw_data = values.tensor.raw_data
    elif isinstance(values, ProtoValues):
        for field, data in values.tensor.ListFields():  # the same field it was read from: nothing is re-encoded
            if field.name.endswith("_data") and field.name != "external_data":
                getattr(proto, field.name).extend(data)
    elif isinstance(values, np.ndarray) and values.dtype.char in _STORED_AS_THEY_ARE and values.dtype.isnative:
        proto.raw_data = values.tobytes()
    elif proto.data_type == TensorProto.STRING:
        strings = load_values(values).reshape(-1)
        proto.string_data.extend(item if isinstance(item, bytes) else str(item).encode() for item in strings)
    else:
        proto.raw_data = b"".join(raw_chunks(values))


def store_skeleton(proto: TensorProto, values: np.ndarray | LazyValues) -> None:
    """Small values inline, the rest only announced: enough for shape inference, whatever the size of the model."""
    if values.nbytes <= _EXTERNAL_FROM_BYTES or proto.data_type == TensorProto.STRING:
        store_inline(proto, values)
    else:
        proto.data_location = TensorProto.EXTERNAL
        proto.external_data.add(key="location", value="skeleton")


class KeptApart:
    """Announces large initializers of the main graph as external data, and keeps their values beside the model.

    Only those `allowed` are: onnxruntime takes initializers of the main graph from memory, and nothing else.
    """

    LOCATION = "memory"

    def __init__(self, allowed: Collection[str]) -> None:
        self.values: dict[str, np.ndarray] = {}
        self._allowed = allowed

    def store(self, proto: TensorProto, values: np.ndarray | LazyValues) -> None:
        """Values of a kilobyte or more beside the model, smaller ones and those of packed formats inside."""
        if proto.name not in self._allowed or values.nbytes < _EXTERNAL_FROM_BYTES or values.dtype.kind not in "fiub":
            store_inline(proto, values)
            return
        held = self.values[proto.name] = np.ascontiguousarray(load_values(values))
        proto.data_location = TensorProto.EXTERNAL
        for name, value in (("location", self.LOCATION), ("offset", "0"), ("length", str(held.nbytes))):
            proto.external_data.add(key=name, value=value)


class DataWriter:
    """Appends tensors to one external-data file, each aligned so that readers can map it."""

    def __init__(self, stream: BinaryIO, location: str) -> None:
        self._stream = stream
        self._location = location
        self._written: dict[tuple[int, int, int], tuple[int, int]] = {}

    def store(self, proto: TensorProto, values: np.ndarray | LazyValues) -> None:
        """Values of a kilobyte or more into the file, smaller ones inline; data shared before stays shared."""
        if proto.data_type == TensorProto.STRING or values.nbytes < _EXTERNAL_FROM_BYTES:
            store_inline(proto, values)
            return
        if isinstance(values, ExternalValues):
            key = (id(values.file), values.offset, values.stored_bytes)
            offset, length = self._written.get(key) or self._append(values)
            self._written[key] = (offset, length)
        else:
            offset, length = self._append(values)
        proto.data_location = TensorProto.EXTERNAL
        for name, value in (("location", self._location), ("offset", str(offset)), ("length", str(length))):
            proto.external_data.add(key=name, value=value)

    def _append(self, values: np.ndarray | LazyValues) -> tuple[int, int]:
        position = self._stream.tell()
        self._stream.write(b"\0" * (-position % _ALIGNMENT))
        start = self._stream.tell()
        for chunk in raw_chunks(values):
            self._stream.write(chunk)
        return start, self._stream.tell() - start
