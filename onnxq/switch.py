"""The one moment at which the files of a stage become those of the folder around it.

A stage is a folder inside an output folder: `new/` holds the files that are to be moved out of it. A journal with their
names is written and renamed to `commit.json`: from here on the new files count. File by file, the old one is kept in
`old/` and the new one takes its place; then the journal is removed. If a move fails, `commit.json` is renamed to
`undo.json`, and the old files are restored. Whoever finds one of the two journals in the stage of a dead process can
carry it out to the end: doing anything twice changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxq.errors import ConfigError
from onnxq.json_file import parse_json

COMMIT, UNDO = "commit.json", "undo.json"
NEW, _OLD, _DRAFT = "new", "old", "draft.json"


def is_pending(stage: Path) -> bool:
    """Whether files of a stage may have been moved, so that it has to be finished or undone."""
    return (stage / COMMIT).exists() or (stage / UNDO).exists()


@dataclass(frozen=True)
class _Move:
    """One file of a journal; `replaces` says that there was one of that name before."""

    name: str
    replaces: bool


def commit(stage: Path, names: Sequence[str]) -> None:
    """From here on the files of the stage count, even if this process is killed before it has moved them."""
    (stage / _OLD).mkdir()
    moves = [{"name": name, "replaces": os.path.lexists(stage.parent / name)} for name in names]
    draft = stage / _DRAFT
    with draft.open("w", encoding="utf-8") as stream:
        json.dump({"format": "onnxq-delivery", "version": 1, "moves": moves}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, stage / COMMIT)


def carry_out(stage: Path) -> None:
    """Make the switch of a journal, or undo it: where a move fails, everything is restored and the error raised."""
    if (stage / UNDO).exists():
        _restore(stage)
        return
    moves = _read(stage / COMMIT)
    try:
        for move in moves:
            _move_in(stage, move)
    except BaseException:
        os.replace(stage / COMMIT, stage / UNDO)
        _restore(stage)
        raise
    (stage / COMMIT).unlink()


def _move_in(stage: Path, move: _Move) -> None:
    new, old, target = stage / NEW / move.name, stage / _OLD / move.name, stage.parent / move.name
    if not os.path.lexists(new):
        return  # moved by a process that was killed afterwards
    if move.replaces and not os.path.lexists(old):
        try:
            os.link(target, old, follow_symlinks=False)  # so that there is a file of that name at every moment
        except (OSError, NotImplementedError):
            os.rename(target, old)  # a file system without hard links
    os.replace(new, target)


def _restore(stage: Path) -> None:
    for move in reversed(_read(stage / UNDO)):
        new, old, target = stage / NEW / move.name, stage / _OLD / move.name, stage.parent / move.name
        if move.replaces:
            if os.path.lexists(old):
                os.replace(old, target)
        elif not os.path.lexists(new) and os.path.lexists(target):
            os.replace(target, new)
    (stage / UNDO).unlink()


def _read(journal: Path) -> list[_Move]:
    try:
        document = parse_json(journal.read_text("utf-8"))
        moves = [_Move(entry["name"], entry["replaces"]) for entry in document["moves"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{journal} is no readable journal of a delivery, so it cannot be said which files of {journal.parents[1]} "
            "belong together: delete that folder and make the files anew"
        ) from error
    if not all(isinstance(move.name, str) and _is_plain(move.name) for move in moves):
        raise ConfigError(f"{journal} names files outside of its folder, which onnxq does not write: delete it")
    return moves


def _is_plain(name: str) -> bool:
    """Whether a name is one of a file inside a folder."""
    return name not in ("", "..") and Path(name).name == name
