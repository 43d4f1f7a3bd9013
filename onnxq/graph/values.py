"""Constant values that are read only when somebody needs them: from the protobuf, from a file, or computed.

A constant's `_values` is a numpy array or one of these. `load()` keeps nothing, so walking over all weights of a model
needs the memory of its largest one. Files are mapped for the lifetime of the returned array only: the pages leave
memory with it.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import TensorProto, numpy_helper
from onnx_graphsurgeon.ir.tensor import LazyValues as GsLazyValues

from onnxq.errors import ModelError
from onnxq.graph.attributes import AttributeValues
from onnxq.graph.data_file import DataFile
from onnxq.graph.element_types import is_packed, numpy_dtype, stored_bytes, stored_size

_MOST_DIMENSIONS = 64
_LARGEST_BYTES = 2**62
_LEAST_BITS = 2
"""Bits of a value in the narrowest format of ONNX."""


class LazyValues(GsLazyValues):  # type: ignore[misc]
    """Shape, dtype and size now; the array later."""

    tensor: TensorProto | None = None

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory (a packed format takes one byte per element there)."""
        return math.prod(self.shape) * self.dtype.itemsize

    def load(self) -> np.ndarray:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"

    __str__ = __repr__


class ProtoValues(LazyValues):
    """Values inside a TensorProto that came with the model."""

    def __init__(self, tensor: TensorProto) -> None:
        dtype = numpy_dtype(tensor.data_type, tensor.name)
        super().__init__(checked_shape(tensor.dims, dtype, tensor.name), dtype)
        self.tensor: TensorProto = tensor
        self._loaded: weakref.ref[np.ndarray] | None = None
        self._check_amount()

    def _check_amount(self) -> None:
        """Whether there are as many values as the shape says, as far as that shows without reading them one by one."""
        tensor, count = self.tensor, math.prod(self.shape)
        if tensor.data_type == TensorProto.STRING:
            held, needed, unit = len(tensor.string_data), count, "strings"
        elif tensor.HasField("raw_data"):
            needed, unit = stored_size(tensor.data_type, self.shape), "bytes"
            held = len(tensor.raw_data)  # copies them, in a quarter of the time that ByteSize takes
        elif count and tensor.ByteSize() < count * _LEAST_BITS // 8:
            held, needed, unit = tensor.ByteSize(), count * _LEAST_BITS // 8, "bytes or more"
        else:
            return
        if held != needed:
            raise ModelError(
                f"the values of tensor '{tensor.name}' do not fit its shape {self.shape}: there are {held:,} {unit}, "
                f"and {self.dtype} of this shape takes {needed:,}. The file is damaged; export the model again"
            )

    def load(self) -> np.ndarray:
        if self.tensor.data_type == TensorProto.STRING:
            strings = np.empty(len(self.tensor.string_data), dtype=object)
            strings[:] = [text(item) for item in self.tensor.string_data]
            return strings.reshape(self.shape)
        held = None if self._loaded is None else self._loaded()
        if held is not None:  # somebody has it still: protobuf copies its bytes each time
            return held
        try:
            held = np.asarray(numpy_helper.to_array(self.tensor))
            held.flags.writeable = False
            self._loaded = weakref.ref(held)
            return held
        except ValueError as error:
            raise ModelError(
                f"the values of tensor '{self.tensor.name}' do not fit its shape {self.shape}: {error}"
            ) from error


class SparseValues(LazyValues):
    """Values of a sparse initializer; `load` gives them dense. Its indices are looked at from the start."""

    def __init__(self, sparse: onnx.SparseTensorProto, values: LazyValues, indices: LazyValues) -> None:
        super().__init__(checked_shape(sparse.dims, values.dtype, sparse.values.name), values.dtype)
        self.sparse = sparse
        self.values, self.indices = values, indices
        self._check_indices()

    def _check_indices(self) -> None:
        name, count = self.sparse.values.name, math.prod(self.values.shape)
        allowed = ((count,), (count, len(self.shape)))
        if len(self.values.shape) != 1 or self.indices.shape not in allowed or self.indices.dtype != np.int64:
            raise ModelError(
                f"sparse tensor '{name}' of shape {self.shape} has values of shape {self.values.shape} and indices of "
                f"{self.indices.dtype}{self.indices.shape}; it needs one list of values, and int64 indices of shape "
                f"{allowed[0]} or {allowed[1]}. Export the model again"
            )
        found = self.indices.load()
        ends = np.array(self.shape if found.ndim == 2 else [math.prod(self.shape)])
        places = found.reshape(count, len(ends))
        outside = np.argwhere((places < 0) | (places >= ends))
        if outside.size:
            raise ModelError(
                f"sparse tensor '{name}' of shape {self.shape} has the index {found[outside[0][0]].tolist()}, "
                "which lies outside of it; the file is damaged, export the model again"
            )

    def load(self) -> np.ndarray:
        values, indices = self.values.load(), self.indices.load()
        try:
            dense = np.zeros(self.shape, dtype=values.dtype)
        except MemoryError as error:
            raise ModelError(
                f"sparse tensor '{self.sparse.values.name}' of shape {self.shape} takes {self.nbytes:,} bytes when it "
                "is written out, which is more than there is memory"
            ) from error
        if indices.ndim == 2:
            dense[tuple(indices.T)] = values
        else:
            dense.reshape(-1)[indices] = values
        return dense


class ExternalValues(LazyValues):
    """Values in an external-data file."""

    def __init__(self, tensor: TensorProto, file: DataFile, offset: int, length: int | None) -> None:
        dtype = numpy_dtype(tensor.data_type, tensor.name)
        super().__init__(checked_shape(tensor.dims, dtype, tensor.name), dtype)
        self.tensor: TensorProto = tensor
        self.file, self.offset = file, offset
        self.stored_bytes = stored_size(tensor.data_type, self.shape)
        if length is not None and length != self.stored_bytes:
            raise ModelError(
                f"tensor '{tensor.name}' of shape {self.shape} needs {self.stored_bytes} bytes, "
                f"but its external data in {file.path} has {length}"
            )
        self._check_inside()

    def _check_inside(self) -> None:
        size = self.file.size()
        if self.offset < 0 or self.offset + self.stored_bytes > size:
            raise ModelError(
                f"external data of tensor '{self.tensor.name}' lies at bytes {self.offset}.."
                f"{self.offset + self.stored_bytes} of {self.file.path}, which has only {size}: the file is truncated, "
                "or belongs to another model"
            )

    def load(self) -> np.ndarray:
        self._check_inside()
        data = self.file.map(self.offset, self.stored_bytes)
        if is_packed(self.tensor.data_type):
            packed = TensorProto(dims=self.shape, data_type=self.tensor.data_type, raw_data=bytes(data))
            return np.asarray(numpy_helper.to_array(packed))
        return np.frombuffer(data, dtype=self.dtype).reshape(self.shape)

    def chunks(self) -> Iterator[bytes]:
        """The stored bytes piece by piece, so that copying them needs no memory worth mentioning."""
        self._check_inside()
        return self.file.chunks(self.offset, self.stored_bytes)


class DeferredValues(LazyValues):
    """Values computed each time they are loaded, such as an integer weight from its float original.

    `pieces` computes the same, a few rows at a time, each of whole bytes in the file: for weights of gigabytes.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        compute: Callable[[], np.ndarray],
        pieces: Callable[[], Iterator[np.ndarray]] | None = None,
    ) -> None:
        super().__init__(shape, dtype)
        self._compute = compute
        self._pieces = pieces

    def load(self) -> np.ndarray:
        values = np.asarray(self._compute())
        if values.shape != self.shape or values.dtype != self.dtype:
            raise ModelError(
                f"deferred values came out as {values.dtype}{values.shape}, promised was {self.dtype}{self.shape}"
            )
        return values

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes as ONNX stores them, in one or more pieces."""
        if self._pieces is None:
            yield stored_bytes(self.load())
            return
        for piece in self._pieces():
            yield stored_bytes(piece)


def checked_shape(dims: Sequence[int], dtype: np.dtype[Any], name: str) -> tuple[int, ...]:
    """The shape that a file gives a tensor; refused where no array can have it."""
    shape = tuple(dims)
    size = math.prod(dim for dim in shape if dim) * dtype.itemsize
    if any(dim < 0 for dim in shape) or len(shape) > _MOST_DIMENSIONS or size > _LARGEST_BYTES:
        raise ModelError(
            f"tensor '{name}' has the shape {shape}, which no array can have: dimensions are not negative, there are "
            f"{_MOST_DIMENSIONS} at most, and all values take less than {_LARGEST_BYTES:,} bytes. "
            "The file is damaged; export the model again"
        )
    return shape


def load_values(values: np.ndarray | LazyValues) -> np.ndarray:
    """The array behind a constant's values."""
    return values.load() if isinstance(values, GsLazyValues) else np.asarray(values)


def raw_chunks(values: np.ndarray | LazyValues) -> Iterator[bytes | memoryview]:
    """The bytes as ONNX stores them, in one or more pieces."""
    if isinstance(values, ExternalValues | DeferredValues):
        yield from values.chunks()
    else:
        yield stored_bytes(load_values(values))


def constant_node_values(attrs: AttributeValues) -> np.ndarray:
    """What a Constant node makes, from whichever of its attributes is set."""
    (name, value), *_ = attrs.items()
    if isinstance(value, gs.Constant):
        return load_values(value._values)
    if isinstance(value, onnx.AttributeProto):
        sparse = value.sparse_tensor
        return SparseValues(sparse, ProtoValues(sparse.values), ProtoValues(sparse.indices)).load()
    element = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return np.asarray(value, dtype=element.get(name, object if name.startswith("value_string") else None))


def text(data: bytes) -> str | bytes:
    """A string of the file, left as bytes when it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data
