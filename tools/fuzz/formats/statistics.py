"""Statistics files: sealed npz files whose first member is a header in JSON, which is mutated as a tree."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from random import Random

import numpy as np

from tools.fuzz.formats.arrays import NPZ_CHANGES, Member, read_members, write_sealed
from tools.fuzz.formats.documents import CHANGES, write_json
from tools.fuzz.formats.format import Change, Format

HEADER = "header.npy"


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
    changed = change(tree, rng)
    text = write_json(tree if changed is None else changed)
    stream = io.BytesIO()
    np.save(stream, np.array(text.encode("ascii", "backslashreplace")))
    return stream.getvalue()


STATISTICS_CHANGES: Mapping[str, Change] = {
    **NPZ_CHANGES,
    **{f"header.{name}": _in_header(change) for name, change in CHANGES.items()},
}

STATISTICS = Format("statistics", read_members, STATISTICS_CHANGES, write_sealed)
