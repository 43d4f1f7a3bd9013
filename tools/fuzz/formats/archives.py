"""zip files, npz among them: members missing, twice, of other names, packed otherwise, or damaged in their packing."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np

from tools.fuzz import hostile
from tools.fuzz.formats.format import Change, Format
from tools.fuzz.formats.npy import NPY_CHANGES, saved
from tools.fuzz.formats.raw_bytes import BYTE_MUTATIONS

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


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
    members.insert(rng.randrange(len(members) + 1), Member(rng.choice(("more.npy", "labels.npy", "x")), saved(array)))


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


def _in_member(change: Change) -> Change:
    def apply(members: list[Member], rng: Random) -> None:
        if members:
            member = rng.choice(members)
            member.data = change(member.data, rng)

    return apply


NPZ_CHANGES: Mapping[str, Change] = {
    **ZIP_CHANGES,
    **{name: _in_member(change) for name, change in NPY_CHANGES.items()},
}

NPZ = Format("npz", read_members, NPZ_CHANGES, write_members)
ZIP = Format("zip", read_members, ZIP_CHANGES, write_members)
