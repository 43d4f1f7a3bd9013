"""Arrays inside .npy and .npz files, of which only the rows that are asked for are read.

A member of a file from numpy.savez lies in it as it is, so its rows are read from their place. A member of a file from
numpy.savez_compressed is unpacked as a stream: rows that are read in order cost the memory of one feed. An array in
Fortran order has its rows scattered over the file; it is mapped, or unpacked as a whole while its piece is read.
"""

from __future__ import annotations

import lzma
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np

from onnxq.errors import DataError
from onnxq.machine import is_fault_of_machine
from onnxq.runtime.memory import available_memory

BROKEN = (
    ValueError,
    OSError,
    EOFError,
    RuntimeError,
    SyntaxError,
    LookupError,
    OverflowError,
    MemoryError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""What numpy, zipfile and the unpackers raise for a file that is damaged, or made to damage."""

VERSIONS = ((1, 0), (2, 0), (3, 0))
"""Of the format of .npy files."""

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
            _check_memory(count * self.dtype.itemsize)
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
        _check_memory(math.prod(self.shape) * self.dtype.itemsize)
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
            _check_names(archive)
            return {
                item.filename.removesuffix(".npy"): _open_member(path, archive, item, file)
                for item in archive.infolist()
            }


def read_arrays(path: Path, stream: IO[bytes] | None = None) -> dict[str, np.ndarray]:
    """Name -> array of a .npz file, all of it in memory; from `stream` where the caller has opened the file.

    The file is opened once at most: one that is replaced meanwhile does not mix with what takes its place.
    """
    opened = path.open("rb") if stream is None else nullcontext(stream)
    with reading(path), opened as file, zipfile.ZipFile(file) as archive:
        _check_names(archive)
        return {item.filename.removesuffix(".npy"): _read_member(path, archive, item) for item in archive.infolist()}


def _check_names(archive: zipfile.ZipFile) -> None:
    names = Counter(item.filename.removesuffix(".npy") for item in archive.infolist())
    for name, count in names.most_common(1):
        if count > 1:
            raise ValueError(f"it holds {count} arrays called '{name}'")


def _read_member(path: Path, archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(item) as stream:
        shape, fortran, dtype = _read_header(stream)
        array = _stored(path, shape, dtype, fortran, stream.tell())
        _check_length(path, item.filename, array, item.file_size)
        size = math.prod(shape) * dtype.itemsize
        _check_memory(size)
        values = np.frombuffer(bytearray(stream.read(size)), dtype)
        return values.reshape(shape, order="F" if fortran else "C")


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
    if version not in VERSIONS:
        raise ValueError(f"it is a .npy file of version {version[0]}.{version[1]}, which no numpy writes")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects. Save plain arrays, not Python objects")
    if any(isinstance(dim, bool) or dim < 0 for dim in shape):  # True passes for a number in numpy's check
        raise ValueError(f"its header has the shape {shape}")
    return shape, fortran, dtype


def _check_length(path: Path, name: str, array: StoredArray, length: int) -> None:
    wanted = array.offset + math.prod(array.shape) * array.dtype.itemsize
    if length < wanted:
        raise ValueError(f"array '{name}' should end at byte {wanted}, but its data has {length} bytes")


_SMALL = 2**20
"""Bytes that are read without asking what is free, which takes longer than reading a small sample."""


def _check_memory(wanted: int) -> None:
    """Before the array is made: a packed file can be small and hold more than any memory."""
    if wanted < _SMALL:
        return
    free = available_memory()
    if wanted > free:
        raise ValueError(f"{wanted / 2**30:,.1f} GiB have to be read at once, and {free / 2**30:,.1f} GiB are free")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn everything that a broken file can raise into an error that names the file."""
    try:
        yield
    except BROKEN as error:
        if is_fault_of_machine(error):
            raise
        said = str(error) or type(error).__name__
        raise DataError(f"cannot read '{path}': {said}. Write it with numpy.save or numpy.savez") from error
