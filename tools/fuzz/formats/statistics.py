"""Statistics files: sealed npz files whose first member is a header in JSON, which is mutated as a tree.

The seal is made anew after a change: a file whose seal is broken is refused before anything in it is read.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from random import Random

import numpy as np

from tools.fuzz.formats.archives import NPZ_CHANGES, Member, read_members, write_members
from tools.fuzz.formats.documents import CHANGES, write_json
from tools.fuzz.formats.format import Change, Format

HEADER = "header.npy"


def write_sealed(members: list[Member]) -> bytes:
    """The last 64 bytes are the SHA-256 of the file as it is without them (onnxq.calibrate.sealed_npz)."""
    data = write_members(members)
    digest = hashlib.sha256(data).hexdigest()
    return data[:-2] + len(digest).to_bytes(2, "little") + digest.encode()


def _in_header(change: Change) -> Change:
    def apply(members: list[Member], rng: Random) -> None:
        for member in members:
            if member.name == HEADER:
                member.data = _changed(member.data, change, rng)
                return

    return apply


def _changed(data: bytes, change: Change, rng: Random) -> bytes:
    try:
        tree = json.loads(np.load(io.BytesIO(data), allow_pickle=False).tobytes())
    except Exception:  # already mutated; numpy raises what tokenize, ast, zipfile and malloc raise
        return data
    try:
        changed = change(tree, rng)
        text = write_json(tree if changed is None else changed)
    except RecursionError:  # an earlier change has nested it so deeply that it can be read, and not be written again
        return data
    stream = io.BytesIO()
    np.save(stream, np.array(text.encode("ascii", "backslashreplace")))
    return stream.getvalue()


STATISTICS_CHANGES: Mapping[str, Change] = {
    **NPZ_CHANGES,
    **{f"header.{name}": _in_header(change) for name, change in CHANGES.items()},
}

STATISTICS = Format("statistics", read_members, STATISTICS_CHANGES, write_sealed)
