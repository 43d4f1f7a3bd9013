"""The file of scores that searches keep: lines of anything else are refused with their number."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from onnxq.errors import DataError
from onnxq.mixed_precision.scores import FILE_NAME, Scores
from onnxq.ptq.search.evaluator import Score


def test_scores_that_are_no_numbers_are_kept(tmp_path: Path) -> None:
    Scores(tmp_path).put("a", Score("sqnr_db", math.nan, -math.inf, {"y": math.inf}))
    found = Scores(tmp_path).get("a")
    assert found is not None
    assert math.isnan(found.value)
    assert found.goodness == -math.inf
    assert found.sqnr_db == {"y": math.inf}


@pytest.mark.parametrize(
    "line",
    [
        b"5",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"key": [], "metric": "kl", "value": 1, "goodness": 1, "sqnr_db": {}}',
        b'{"key": "a", "metric": "kl", "value": "1", "goodness": 1, "sqnr_db": {}}',
        b'{"key": "a", "metric": "kl", "value": 1, "goodness": 1, "sqnr_db": {"y": []}}',
        b'{"key": "a", "metric": "kl", "value": 1, "goodness": 1, "sqnr_db": 3}',
    ],
)
def test_a_line_that_is_no_score_is_named(line: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(line + b"\n")
    with pytest.raises(DataError, match=r"scores\.jsonl, line 1 is no score"):
        Scores(tmp_path)
