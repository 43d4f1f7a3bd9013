"""One external-data file, mapped where it is read, and the same file for as long as the model lives."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from onnxq.errors import ModelError

_CHUNK_BYTES = 2**20
"""What is read at a time: it stays in the processor's cache for who looks at it."""


class DataFile:
    """A file whose content must not change while the model is in memory.

    With `keep_open` the descriptor is held from the start, so that the data survives even if the path is replaced or
    removed; without it (a model with a thousand data files must not use up the process's descriptors) a replaced file
    is noticed and refused.
    """

    def __init__(self, path: Path, keep_open: bool) -> None:
        self.path = path
        self._descriptor: int | None = None
        descriptor = self._open()
        self._identity = _identity(descriptor)
        if keep_open:
            self._descriptor = descriptor
        else:
            os.close(descriptor)

    def size(self) -> int:
        """Bytes in the file, now."""
        return os.fstat(self._descriptor).st_size if self._descriptor is not None else self._stat().st_size

    def map(self, offset: int, length: int) -> memoryview:
        """A read-only view of `length` bytes at `offset`; the mapping ends with the last reference to it."""
        if length == 0:
            return memoryview(b"")
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        descriptor = self._borrow()
        try:
            mapped = mmap.mmap(descriptor, offset + length - start, access=mmap.ACCESS_READ, offset=start)
        finally:
            self._give_back(descriptor)
        return memoryview(mapped)[offset - start :]

    def chunks(self, offset: int, length: int) -> Iterator[bytes]:
        """The same bytes in pieces of a megabyte, read without mapping."""
        descriptor = self._borrow()
        try:
            end = offset + length
            while offset < end:
                piece = os.pread(descriptor, min(_CHUNK_BYTES, end - offset), offset)
                if not piece:
                    raise ModelError(f"external data file {self.path} became shorter while it was read")
                offset += len(piece)
                yield piece
        finally:
            self._give_back(descriptor)

    def _borrow(self) -> int:
        if self._descriptor is not None:
            return self._descriptor
        descriptor = self._open()
        if _identity(descriptor) != self._identity:
            os.close(descriptor)
            raise ModelError(
                f"external data file {self.path} was replaced after the model was read; load the model again"
            )
        return descriptor

    def _give_back(self, descriptor: int) -> None:
        if descriptor != self._descriptor:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDONLY)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.EIO):  # of the machine, not of the model
                raise
            raise ModelError(f"cannot read external data file {self.path}: {error.strerror}") from error

    def _stat(self) -> os.stat_result:
        try:
            return os.stat(self.path)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.EIO):  # of the machine, not of the model
                raise
            raise ModelError(f"cannot read external data file {self.path}: {error.strerror}") from error

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            os.close(self._descriptor)  # type: ignore[arg-type]


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
