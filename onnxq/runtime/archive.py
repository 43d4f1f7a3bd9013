"""Arrays inside .npy and .npz files, of which only the rows that are asked for are read.

A member of a file from numpy.savez lies in it as it is, so its rows are read from their place. A member of a file from
numpy.savez_compressed is unpacked as a stream: rows that are read in order cost the memory of one feed. An array in
Fortran order has its rows scattered over the file; it is mapped, or unpacked as a whole while its piece is read.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np

from onnxq.errors import DataError
from onnxq.machine import is_fault_of_machine

LOCAL_HEADER_BYTES = 30
"""The fixed part of the header before each member of a zip file; the lengths of its two variable parts end it."""


@dataclass(frozen=True)
class StoredArray:
    """One array in a file; indexing with a number or a slice of rows reads just these.

    offset  where its values begin: in the file, or in the unpacked `member`
    member  the compressed member of a zip file that holds it, None where the values lie in the file as they are
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    offset: int
    member: str | None = None

    def __getitem__(self, rows: int | slice) -> np.ndarray:
        if self.fortran:
            with reading(self.path):
                return np.array(self._whole[rows])
        first, last, step = (slice(rows, rows + 1) if isinstance(rows, int) else rows).indices(self.shape[0])
        if step != 1 or (isinstance(rows, int) and not 0 <= rows < self.shape[0]):
            raise IndexError(f"rows {rows} of an array with {self.shape[0]} rows")
        array = self._read(first * math.prod(self.shape[1:]), (max(last - first, 0), *self.shape[1:]))
        return array[0] if isinstance(rows, int) else array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        with reading(self.path):
            array = self._whole if self.fortran else self._read(0, self.shape)
        return np.asarray(array, dtype=dtype)

    def _read(self, start: int, shape: tuple[int, ...]) -> np.ndarray:
        """Values number `start` and on, in memory of their own: aligned, and gone when the feed is."""
        count, offset = math.prod(shape), self.offset + start * self.dtype.itemsize
        with reading(self.path):
            if self.member is None:
                values = np.fromfile(self.path, self.dtype, count, offset=offset)
            else:
                self._stream.seek(offset)
                values = np.frombuffer(self._stream.read(count * self.dtype.itemsize), self.dtype)
            return values.reshape(shape)

    @cached_property
    def _stream(self) -> IO[bytes]:
        """The member being unpacked; going on where the last read ended costs nothing, going back starts anew."""
        assert self.member is not None
        return zipfile.ZipFile(self.path).open(self.member)

    @cached_property
    def _whole(self) -> np.ndarray:
        if self.member is None:
            return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, "F")
        self._stream.seek(self.offset)
        values = np.frombuffer(self._stream.read(), self.dtype)
        return values.reshape(self.shape, order="F")


def open_arrays(path: Path) -> dict[str, StoredArray]:
    """Name -> array of a .npz file; the array of a .npy file stands under the file's name. Only headers are read."""
    with reading(path):
        if path.suffix == ".npy":
            with path.open("rb") as stream:
                shape, fortran, dtype = _read_header(stream)
                found = {path.stem: _stored(path, shape, dtype, fortran, stream.tell())}
            _check_length(path, path.stem, found[path.stem], os.path.getsize(path))
            return found
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            return {
                item.filename.removesuffix(".npy"): _open_member(path, archive, item, file)
                for item in archive.infolist()
            }


def _open_member(path: Path, archive: zipfile.ZipFile, item: zipfile.ZipInfo, file: IO[bytes]) -> StoredArray:
    with archive.open(item) as stream:
        shape, fortran, dtype = _read_header(stream)
        offset = stream.tell()
    array = _stored(path, shape, dtype, fortran, offset, item.filename)
    _check_length(path, item.filename, array, item.file_size)
    if item.compress_type != zipfile.ZIP_STORED:
        return array
    file.seek(item.header_offset)
    header = file.read(LOCAL_HEADER_BYTES)
    name_length, extra_length = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    begin = item.header_offset + LOCAL_HEADER_BYTES + name_length + extra_length
    return _stored(path, shape, dtype, fortran, begin + offset)


def _stored(
    path: Path, shape: tuple[int, ...], dtype: np.dtype, fortran: bool, offset: int, member: str | None = None
) -> StoredArray:
    # With at most one axis, or without values, there is but one order; a mapping of no bytes is not possible.
    fortran = fortran and len(shape) > 1 and math.prod(shape) > 0
    return StoredArray(path, shape, dtype, fortran, offset, member)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects. Save plain arrays, not Python objects")
    return shape, fortran, dtype


def _check_length(path: Path, name: str, array: StoredArray, length: int) -> None:
    wanted = array.offset + math.prod(array.shape) * array.dtype.itemsize
    if length < wanted:
        raise ValueError(f"array '{name}' should end at byte {wanted}, but its data has {length} bytes")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn everything that a broken file can raise into an error that names the file."""
    try:
        yield
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        if is_fault_of_machine(error):
            raise
        raise DataError(f"cannot read '{path}': {error}. Write it with numpy.save or numpy.savez") from error
