"""Scores that are kept: in a file of lines that grows with every evaluation, so that a run that was cut off goes on.

A key is a hash of everything that a score depends on, so a file may hold scores of any number of models and metrics,
and what belongs to something else is never used. A line that was not written to its end is left out.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, StrictFloat, StrictStr

from onnxq.errors import DataError
from onnxq.ptq.search.evaluator import Score

FILE_NAME = "scores.jsonl"


class _Line(BaseModel):
    """A line of the file; a score may be infinite, or no number at all."""

    key: StrictStr
    metric: StrictStr
    value: StrictFloat
    goodness: StrictFloat
    sqnr_db: dict[StrictStr, StrictFloat]


class Scores:
    """Key -> score; `found` counts the different ones that the file knew already."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / FILE_NAME
        self._held: dict[str, Score] = {}
        self._old: set[str] = set()
        self._used: set[str] = set()
        if self._path is not None:
            self._read(self._path)

    def _read(self, path: Path) -> None:
        if not path.exists():
            return
        text = path.read_bytes()
        whole, _, rest = text.rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                entry = _Line.model_validate_json(line)
                self._held[entry.key] = Score(entry.metric, entry.value, entry.goodness, entry.sqnr_db)
            except ValueError:
                raise DataError(
                    f"{path}, line {number} is no score: delete the file, or give another --cache"
                ) from None
        self._old = set(self._held)
        if rest:  # the line that a run was writing when it ended
            path.write_bytes(text[: len(text) - len(rest)])

    @property
    def found(self) -> int:
        return len(self._used & self._old)

    def get(self, key: str) -> Score | None:
        self._used.add(key)
        return self._held.get(key)

    def put(self, key: str, score: Score) -> None:
        self._held[key] = score
        if self._path is None:
            return
        entry = {"key": key, "metric": score.metric, "value": score.value, "goodness": score.goodness,
                 "sqnr_db": dict(score.sqnr_db)}  # fmt: skip
        self._path.parent.mkdir(parents=True, exist_ok=True)  # not before: wrong use leaves no folder behind
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")
