"""npy files: headers that lie about types and shapes, values that are cut off, of another type, or no numbers."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from random import Random

import numpy as np

from tools.fuzz import hostile
from tools.fuzz.formats.format import Change, Format

MAGIC = b"\x93NUMPY"

TYPES = (
    *("'<f4'", "'<f8'", "'>f4'", "'<f2'", "'<i8'", "'|u1'", "'|b1'", "'<c8'", "'|O'", "'|V8'", "'<U9'", "'|S4'"),
    *("'<M8[s]'", "'<U99999999'", "'f99'", "''", "'|V0'", "[('a', '<f4'), ('b', '|O')]", "('<f4', (2, 2))"),
    *("None", "1", "{}"),
)
SHAPES = (
    *("()", "(0,)", "(1,)", "(-1,)", "(2, 3)", "(1, 1, 8, 8)", "(1, 8, 8)", "(0, 1, 8, 8)", "5", "'x'", "None"),
    *("(1.5,)", "(True,)", "[1, 2]", "(3, 'a')", "(1, 2", "(" * 300 + ")" * 300, str((1,) * 40)),
    *(str((10**9, 4)), str((10**12,)), str((2**31, 2**31)), str((2**63,)), str((10**30,)), str((0, 2**62))),
)


def _npy_header(data: bytes) -> tuple[str, bytes]:
    """The header's text and the values behind it; an npy of version 1, as numpy writes it."""
    if not data.startswith(MAGIC) or len(data) < 10:
        return "{}", data
    length = struct.unpack("<H", data[8:10])[0]
    return data[10 : 10 + length].decode("latin1"), data[10 + length :]


def _npy(header: str, values: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("latin1", "replace")
    size = struct.pack("<H", min(len(text), 65535)) if version[0] == 1 else struct.pack("<I", len(text))
    return MAGIC + bytes(version) + size + text + values


def _described(data: bytes, *, dtype: str | None = None, shape: str | None = None, order: str = "False") -> bytes:
    """The same values under another header."""
    array = _array(data)
    own_type = "'<f4'" if array is None else repr(array.dtype.str)
    own_shape = "()" if array is None else repr(array.shape)
    header = f"{{'descr': {dtype or own_type}, 'fortran_order': {order}, 'shape': {shape or own_shape}, }}\n"
    return _npy(header, _npy_header(data)[1])


def _array(data: bytes) -> np.ndarray | None:
    try:
        return np.asarray(np.load(io.BytesIO(data), allow_pickle=False))
    except Exception:  # already mutated; numpy raises what tokenize, ast, zipfile and malloc raise
        return None


def saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def other_type(data: bytes, rng: Random) -> bytes:
    return _described(data, dtype=rng.choice(TYPES))


def other_shape(data: bytes, rng: Random) -> bytes:
    return _described(data, shape=rng.choice(SHAPES))


def other_order(data: bytes, rng: Random) -> bytes:
    return _described(data, order=rng.choice(("True", "None", "2")))


def odd_header(data: bytes, rng: Random) -> bytes:
    header, values = _npy_header(data)
    return _npy(
        rng.choice(
            (
                header.replace("}", ""),
                "",
                "{" * 3000,
                "[]",
                header.replace("shape", "shap"),
                header + "x" * 70,
                "__import__('os')",
                header.replace("(", "((", 1),
                header.replace("'", '"', 1),
                header.replace("{", "{'more': 1, ", 1),
                "\x00" * 64,
                "-" * 5000 + "1",
            )
        ),
        values,
    )


def other_version(data: bytes, rng: Random) -> bytes:
    header, values = _npy_header(data)
    return _npy(header, values, rng.choice(((2, 0), (3, 0), (9, 0), (0, 0), (255, 255), (1, 1))))


def cut_values(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def odd_values(data: bytes, rng: Random) -> bytes:
    array = _array(data)
    if array is None or array.dtype.kind != "f" or not array.size:
        return data
    array = array.copy()
    if rng.random() < 0.5:
        array[...] = hostile.float_value(rng)
    else:
        array.flat[rng.randrange(array.size)] = hostile.float_value(rng)
    return saved(array)


def converted(data: bytes, rng: Random) -> bytes:
    array = _array(data)
    if array is None or array.dtype.kind not in "fiub":
        return data
    with np.errstate(all="ignore"):
        return saved(array.astype(rng.choice(("f8", "f2", "i8", "u1", "?", "c8", "O", "U8", "S8", ">f4"))))


def reshaped(data: bytes, rng: Random) -> bytes:
    array = _array(data)
    if array is None:
        return data
    made = (
        array.reshape(-1),
        array[None],
        array.reshape(array.shape + (1,)),
        array[:0] if array.ndim else array,
        np.repeat(array[None], 3, axis=0),
        array.T,
        array.reshape(-1)[: array.size // 2],
    )
    return saved(rng.choice(made))


NPY_CHANGES: Mapping[str, Change] = {
    f"npy.{change.__name__}": change
    for change in (
        *(other_type, other_shape, other_order, odd_header, other_version, cut_values, odd_values, converted),
        reshaped,
    )
}

NPY = Format("npy", lambda data: data, NPY_CHANGES, lambda data: data)
