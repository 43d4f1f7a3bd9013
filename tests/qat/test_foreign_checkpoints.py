"""Checkpoints that somebody else has written: refused with file and key before a training goes on from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from onnxq.errors import ConfigError
from onnxq.qat.checkpoint import FORMAT, Checkpoints

IDENTITY = {"data": {"samples": 4}}
STATE = {
    "step": 4,
    "seconds": 1.5,
    "net": {"weight": torch.zeros(2)},
    "optimizer": {"state": {}, "param_groups": []},
    "history": {"every": 1, "rows": [[4, 1, 0.5, None, None, 0.1, None]], "sums": {}, "count": 0, "pending": None},
    "best": {"higher_is_better": True, "value": None, "step": 0, "epoch": 0, "stale": 0},
}


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path, IDENTITY)


def test_what_was_saved_is_read(checkpoints: Checkpoints) -> None:
    checkpoints.save(4, STATE)
    found = checkpoints.newest()
    assert found is not None
    assert found["history"] == STATE["history"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a step in words": ({"step": "4"}, "step: must be a whole number"),
    "a step below zero": ({"step": -1}, "step: must be 0 or more"),
    "a time that is no number": ({"seconds": float("nan")}, "seconds"),
    "parameters in a list": ({"net": [1]}, "net: must be a table"),
    "a course of numbers": ({"history": 5}, "history: must be a table"),
    "a row that is short": ({"history": {**STATE["history"], "rows": [[1, 2]]}}, "history.rows[0]"),  # type: ignore[dict-item]
    "a best of text": ({"best": "first"}, "best: must be a table"),
    "an identity of bytes": ({"identity": 5}, "identity: must be text"),
    "an identity of brackets": ({"identity": "[" * 100_000}, "identity: it has more than 64 levels"),
    "an identity of something else": ({"identity": "[]"}, "belongs to another training"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_a_checkpoint_is_held_against_its_schema(
    changes: dict[str, Any], message: str, checkpoints: Checkpoints
) -> None:
    content = {"format": FORMAT, "identity": json.dumps(IDENTITY), **STATE, **changes}
    torch.save(content, checkpoints.folder / "step-00000004.pt")
    with pytest.raises(ConfigError) as caught:
        checkpoints.newest()
    assert "step-00000004.pt" in str(caught.value)
    assert message in str(caught.value)


class Runs:
    """Code that pickle would run."""

    def __reduce__(self) -> Any:
        return (open, ("witness", "w"))


def test_a_checkpoint_runs_no_code(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoints.folder)
    torch.save({"format": FORMAT, "identity": Runs()}, checkpoints.folder / "step-00000004.pt")
    with pytest.raises(ConfigError, match="no readable checkpoint"):
        checkpoints.newest()
    assert not Path("witness").exists()
