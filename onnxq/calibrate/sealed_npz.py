"""npz files of which equal contents have equal bytes, and which show any damage before they are used.

The file is a plain npz: a zip of uncompressed npy files (compressing to a fifth takes twice as long, and its bytes
depend on the release of zlib), the first of which is a text called `header`. The comment of the zip, its last 64 bytes,
is the SHA-256 of the file as it was without comment.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from onnxq.errors import DataError
from onnxq.files import replace_file
from onnxq.runtime.archive import read_arrays

_EARLIEST_DATE = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_NO_COMMENT = bytes(2)
"""The end of a zip without comment: the length of the comment, which is zero."""
_SEAL_BYTES = len(_NO_COMMENT) + 64
_CHUNK_BYTES = 1 << 20

_HEADER = "header"
_BEGIN, _NAME_AT = b"PK\x03\x04", 30
"""How a zip begins, and where the name of its first member stands."""

REMEDY = "delete it and calibrate again"


def write_sealed(path: Path, header: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the header (ASCII) and the arrays in their order; the file appears whole, on disk, or not at all."""
    content = {_HEADER: np.array(header.encode("ascii")), **arrays}
    replace_file(path, lambda stream: _write(stream, content))


def read_sealed(path: Path) -> tuple[str, dict[str, np.ndarray]]:
    """Header and arrays of the file; DataError when a single bit is not as it was written."""
    if not path.is_file():
        raise DataError(f"no statistics file at {path}")
    with path.open("rb") as stream:  # once: another process may replace the file while it is read
        _check_seal(stream, path)
        try:
            arrays = read_arrays(path, stream)
            return arrays.pop(_HEADER).tobytes().decode("ascii"), arrays
        except (DataError, LookupError, ValueError) as error:  # a seal says that nothing was damaged, not who made it
            raise DataError(f"{path} cannot be used: {error}; {REMEDY}") from None


class _HashedStream(io.RawIOBase):
    """Passes bytes on and hashes them; it cannot seek, so zipfile does not go back to change any."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def write(self, data: Any, /) -> int:
        self.digest.update(data)
        return self._stream.write(data)


def _write(stream: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    hashed = _HashedStream(stream)
    with zipfile.ZipFile(hashed, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy", _EARLIEST_DATE)
            member.create_system = _UNIX  # otherwise the bytes tell on which system they were written
            with archive.open(member, "w", force_zip64=True) as content:
                plain = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
                np.lib.format.write_array(content, plain, allow_pickle=False)
    stream.seek(-len(_NO_COMMENT), os.SEEK_END)
    stream.write(_seal(hashed.digest.hexdigest()))
    stream.flush()
    os.fsync(stream.fileno())


def _seal(hexdigest: str) -> bytes:
    """The end of a zip whose comment is the hash: length, then text."""
    return len(hexdigest).to_bytes(len(_NO_COMMENT), "little") + hexdigest.encode()


def _check_seal(stream: BinaryIO, path: Path) -> None:
    name = f"{_HEADER}.npy".encode()
    start = stream.read(_NAME_AT + len(name))
    if start[: len(_BEGIN)] != _BEGIN or start[_NAME_AT:] != name:
        raise DataError(f"{path} does not begin like a statistics file of onnxq: give another one, or calibrate again")
    remaining = stream.seek(0, os.SEEK_END) - _SEAL_BYTES
    stream.seek(0)
    digest = hashlib.sha256()
    while remaining > 0:
        chunk = stream.read(min(_CHUNK_BYTES, remaining))
        digest.update(chunk)
        remaining -= len(chunk)
    digest.update(_NO_COMMENT)
    if stream.read() != _seal(digest.hexdigest()):
        raise DataError(f"{path} is damaged or was cut off; {REMEDY}")
