"""Results as lines of JSON: appended one by one, so that a run that was interrupted goes on where it ended."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.zoo.verdicts import Cell, Key

WORSE_DB, WORSE_AGREEMENT = 1.0, 0.03
"""Smaller losses than these are not told: other kernels and other orders of sums move figures too."""


def code_hash(root: Path) -> str:
    """Of all Python files of the package: results of other code are other results."""
    found = hashlib.sha256()
    for path in sorted((root / "onnxq").rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def read(path: Path) -> list[Cell]:
    """All cells in the order of the file; a last line that was cut off is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [Cell.from_json(line) for line in lines[:-1] if line]


def append(path: Path, cell: Cell) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0, 2)
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":  # a line that was cut off by a crash ends here
                file.write(b"\n")
        file.write(cell.to_json().encode() + b"\n")


def latest(cells: Iterable[Cell]) -> dict[Key, Cell]:
    return {cell.key: cell for cell in cells}


@dataclass(frozen=True)
class Slot:
    """A cell whatever code made it."""

    model: str
    target: str
    effort: int


def by_slot(cells: Iterable[Cell], code: str | None = None, other_than: str | None = None) -> dict[Slot, Cell]:
    """The last result of each slot, of one version of the code, or of any other one."""
    return {
        Slot(cell.model, cell.key.target, cell.key.effort): cell
        for cell in cells
        if (code is None or cell.key.code == code) and (other_than is None or cell.key.code != other_than)
    }


@dataclass(frozen=True)
class Worse:
    slot: Slot
    before: Cell
    now: Cell


def worse_than(before: dict[Slot, Cell], now: dict[Slot, Cell]) -> list[Worse]:
    """Cells with a worse verdict, or a loss of dB or of agreement that is more than chance."""
    return [
        Worse(slot, before[slot], cell)
        for slot, cell in now.items()
        if slot in before and _is_worse(before[slot], cell)
    ]


def _is_worse(before: Cell, now: Cell) -> bool:
    if now.verdict.rank != before.verdict.rank:
        return now.verdict.rank < before.verdict.rank
    return _fell(before.worst_db, now.worst_db, WORSE_DB) or _fell(before.agreement, now.agreement, WORSE_AGREEMENT)


def _fell(before: float | None, now: float | None, much: float) -> bool:
    return before is not None and now is not None and before - now > much


def missing(done: dict[Key, Cell], sha256: str, wanted: Sequence[tuple[str, int]], code: str) -> list[tuple[str, int]]:
    """The targets and efforts of one model that there is no result of yet."""
    final = {key for key, cell in done.items() if cell.verdict.final}
    return [(target, effort) for target, effort in wanted if Key(sha256, target, effort, code) not in final]
