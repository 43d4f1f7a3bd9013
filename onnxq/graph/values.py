"""Constant values that are read only when somebody needs them: from the protobuf, from a file, or computed.

A constant's `_values` is a numpy array or one of these. `load()` never caches, so walking over all weights of a model
needs the memory of its largest one. Files are mapped for the lifetime of the returned array only: the pages leave
memory with it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx_graphsurgeon.ir.tensor import LazyValues as GsLazyValues

from onnxq.errors import ModelError

# Elements per byte of the formats that ONNX packs.
_PACKED_BITS = {
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
    TensorProto.FLOAT4E2M1: 4,
    TensorProto.INT2: 2,
    TensorProto.UINT2: 2,
}


class LazyValues(GsLazyValues):  # type: ignore[misc]
    """Shape, dtype and size now; the array later."""

    tensor: TensorProto | None = None

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def load(self) -> np.ndarray:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"

    __str__ = __repr__


class ProtoValues(LazyValues):
    """Values inside a TensorProto that came with the model."""

    def __init__(self, tensor: TensorProto) -> None:
        super().__init__(tuple(tensor.dims), numpy_dtype(tensor.data_type, tensor.name))
        self.tensor = tensor

    def load(self) -> np.ndarray:
        assert self.tensor is not None
        return np.asarray(numpy_helper.to_array(self.tensor))


class ExternalFile:
    """One external-data file, opened at first use and kept open so that a later rewrite of the path does no harm."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def open(self) -> int:
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY)
            except OSError as error:
                raise ModelError(f"cannot read external data file {self.path}: {error.strerror}") from error
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self.open()).st_size

    def map(self, offset: int, length: int) -> memoryview:
        """A read-only view of `length` bytes at `offset`; the mapping ends with the last reference to it."""
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(self.open(), offset + length - start, access=mmap.ACCESS_READ, offset=start)
        return memoryview(mapped)[offset - start :]

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


class ExternalValues(LazyValues):
    """Values in an external-data file."""

    def __init__(self, tensor: TensorProto, file: ExternalFile, offset: int, length: int | None) -> None:
        super().__init__(tuple(tensor.dims), numpy_dtype(tensor.data_type, tensor.name))
        self.tensor = tensor
        self.file, self.offset = file, offset
        self.stored_bytes = stored_size(tensor.data_type, self.shape)
        if length is not None and length != self.stored_bytes:
            raise ModelError(
                f"tensor '{tensor.name}' of shape {self.shape} needs {self.stored_bytes} bytes, "
                f"but its external data in {file.path} has {length}"
            )

    def raw(self) -> memoryview:
        """The stored bytes, checked to be inside the file."""
        size = self.file.size()
        if self.offset < 0 or self.offset + self.stored_bytes > size:
            name = self.tensor.name if self.tensor is not None else "?"
            raise ModelError(
                f"external data of tensor '{name}' lies at bytes {self.offset}..{self.offset + self.stored_bytes} "
                f"of {self.file.path}, which has only {size}"
            )
        return self.file.map(self.offset, self.stored_bytes) if self.stored_bytes else memoryview(b"")

    def load(self) -> np.ndarray:
        assert self.tensor is not None
        if self.tensor.data_type in _PACKED_BITS:
            packed = TensorProto(dims=self.shape, data_type=self.tensor.data_type, raw_data=bytes(self.raw()))
            return np.asarray(numpy_helper.to_array(packed))
        return np.frombuffer(self.raw(), dtype=self.dtype).reshape(self.shape)


class DeferredValues(LazyValues):
    """Values computed each time they are loaded, such as an integer weight from its float original."""

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any], compute: Callable[[], np.ndarray]) -> None:
        super().__init__(shape, dtype)
        self._compute = compute

    def load(self) -> np.ndarray:
        values = np.asarray(self._compute())
        if values.shape != self.shape or values.dtype != self.dtype:
            raise ModelError(
                f"deferred values came out as {values.dtype}{values.shape}, promised was {self.dtype}{self.shape}"
            )
        return values


def numpy_dtype(onnx_dtype: int, name: str = "") -> np.dtype[Any]:
    """numpy (or ml_dtypes) dtype of an ONNX element type."""
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(onnx_dtype))
    except KeyError:
        raise ModelError(f"tensor '{name}' has the unknown element type {onnx_dtype}") from None


def onnx_dtype(dtype: Any) -> int:
    """ONNX element type of a numpy or ml_dtypes dtype; ONNX numbers pass through."""
    if isinstance(dtype, int):
        return dtype
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def stored_size(element_type: int, shape: Sequence[int]) -> int:
    """Bytes that the values take in a file, packed formats included."""
    count = int(np.prod(tuple(shape), dtype=np.int64))
    bits = _PACKED_BITS.get(element_type)
    if bits is not None:
        return -(-count * bits // 8)
    return count * numpy_dtype(element_type).itemsize


def raw_bytes(values: np.ndarray | LazyValues) -> memoryview:
    """The bytes as ONNX stores them (little endian, packed where the format is); zero-copy where possible."""
    if isinstance(values, ExternalValues):
        return values.raw()
    array = values.load() if isinstance(values, GsLazyValues) else values
    if onnx_dtype(array.dtype) in _PACKED_BITS:
        return memoryview(numpy_helper.from_array(array).raw_data)
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
