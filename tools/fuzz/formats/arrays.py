"""npy and npz files, and the sealed ones that statistics are kept in: headers that lie, members that are damaged.

An npz is a list of members; the seal of a statistics file is made anew after a change, because a file whose seal is
broken is refused before anything in it is read.
"""

from __future__ import annotations

import hashlib
import io
import struct
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np

from tools.fuzz import hostile
from tools.fuzz.formats.format import Change, Format
from tools.fuzz.formats.raw_bytes import BYTE_MUTATIONS

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
MAGIC = b"\x93NUMPY"

TYPES = (
    *(
        "'<f4'",
        "'<f8'",
        "'>f4'",
        "'<f2'",
        "'<i8'",
        "'|u1'",
        "'|b1'",
        "'<c8'",
        "'|O'",
        "'|V8'",
        "'<U9'",
        "'|S4'",
        "'<M8[s]'",
    ),
    *("'<U99999999'", "'f99'", "''", "'|V0'", "[('a', '<f4'), ('b', '|O')]", "('<f4', (2, 2))", "None", "1", "{}"),
)
SHAPES = (
    *(
        "()",
        "(0,)",
        "(1,)",
        "(-1,)",
        "(2, 3)",
        "(1, 1, 8, 8)",
        "(1, 8, 8)",
        "(0, 1, 8, 8)",
        "(1,) * 40",
        "5",
        "'x'",
        "None",
    ),
    *(
        "(10**12,)",
        "(2**31, 2**31)",
        "(2**63,)",
        "(10**30,)",
        "(1.5,)",
        "(True,)",
        "[1, 2]",
        "(3, 'a')",
        "(" * 300 + ")" * 300,
    ),
)


@dataclass
class Member:
    """One file of a zip, how it is packed, and whether its packed bytes are damaged."""

    name: str
    data: bytes
    method: int = zipfile.ZIP_STORED
    damage: int | None = None


def read_members(data: bytes) -> list[Member]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [Member(item.filename, archive.read(item), item.compress_type) for item in archive.infolist()]


def write_members(members: list[Member]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that stand twice are wanted
        for member in members:
            item = zipfile.ZipInfo(member.name[:60_000], (1980, 1, 1, 0, 0, 0))
            item.compress_type = member.method
            archive.writestr(item, member.data)
        places = [(item.header_offset, item.compress_size, len(item.filename.encode())) for item in archive.infolist()]
    data = bytearray(stream.getvalue())
    for member, (start, size, name) in zip(members, places, strict=True):
        if member.damage is not None and size:
            rng = Random(member.damage)
            for _ in range(rng.choice((1, 5))):
                data[start + 30 + name + rng.randrange(size)] ^= 1 << rng.randrange(8)
    return bytes(data)


def write_sealed(members: list[Member]) -> bytes:
    """The last 64 bytes are the SHA-256 of the file as it is without them (onnxq.calibrate.sealed_npz)."""
    data = write_members(members)
    digest = hashlib.sha256(data).hexdigest()
    return data[:-2] + len(digest).to_bytes(2, "little") + digest.encode()


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
        return np.load(io.BytesIO(data), allow_pickle=False)
    except Exception:  # already mutated; numpy raises what tokenize, ast, zipfile and malloc raise
        return None


def _saved(array: np.ndarray) -> bytes:
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
    return _saved(array)


def converted(data: bytes, rng: Random) -> bytes:
    array = _array(data)
    if array is None or array.dtype.kind not in "fiub":
        return data
    with np.errstate(all="ignore"):
        return _saved(array.astype(rng.choice(("f8", "f2", "i8", "u1", "?", "c8", "O", "U8", "S8", ">f4"))))


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
    return _saved(rng.choice(made))


_NPY_CHANGES = (
    *(other_type, other_shape, other_order, odd_header, other_version, cut_values, odd_values, converted, reshaped),
)


def _in_member(name: str, change: Change) -> Change:
    def apply(members: list[Member], rng: Random) -> None:
        if members:
            member = rng.choice(members)
            member.data = change(member.data, rng)

    apply.__name__ = name
    return apply


def remove_member(members: list[Member], rng: Random) -> None:
    if members:
        del members[rng.randrange(len(members))]


def repeat_member(members: list[Member], rng: Random) -> None:
    if members:
        member = rng.choice(members)
        members.append(Member(member.name, member.data, member.method))


def swap_members(members: list[Member], rng: Random) -> None:
    if members:
        first, second = rng.choice(members), rng.choice(members)
        first.data, second.data = second.data, first.data


def rename_member(members: list[Member], rng: Random) -> None:
    if members:
        name = rng.choice(
            (hostile.name(rng) + ".npy", hostile.name(rng), "header.npy", "labels.npy", "../up.npy", "/abs.npy")
        )
        rng.choice(members).name = name.replace("\x00", "") or "x"


def add_member(members: list[Member], rng: Random) -> None:
    array = rng.choice((np.zeros(3, np.float32), np.array({"a": 1}, dtype=object), np.array("text"), np.zeros((0,))))
    members.insert(rng.randrange(len(members) + 1), Member(rng.choice(("more.npy", "labels.npy", "x")), _saved(array)))


def other_packing(members: list[Member], rng: Random) -> None:
    method = rng.choice(METHODS)
    for member in members:
        member.method = method


def damaged_packing(members: list[Member], rng: Random) -> None:
    if members:
        member = rng.choice(members)
        member.method, member.damage = rng.choice(METHODS), rng.getrandbits(32)


def damaged_member(members: list[Member], rng: Random) -> None:
    """Bytes of a member changed before it is packed, so that its checksum is right."""
    if members:
        member = rng.choice(members)
        member.data = BYTE_MUTATIONS[rng.choice(list(BYTE_MUTATIONS))](member.data, rng)


ZIP_CHANGES: Mapping[str, Change] = {
    f"zip.{change.__name__}": change
    for change in (
        *(remove_member, repeat_member, swap_members, rename_member, add_member, other_packing),
        *(damaged_packing, damaged_member),
    )
}
NPY_CHANGES: Mapping[str, Change] = {f"npy.{change.__name__}": change for change in _NPY_CHANGES}
NPZ_CHANGES: Mapping[str, Change] = {
    **ZIP_CHANGES,
    **{name: _in_member(name, change) for name, change in NPY_CHANGES.items()},
}

NPY = Format("npy", lambda data: data, NPY_CHANGES, lambda data: data)
NPZ = Format("npz", read_members, NPZ_CHANGES, write_members)
ZIP = Format("zip", read_members, ZIP_CHANGES, write_members)
