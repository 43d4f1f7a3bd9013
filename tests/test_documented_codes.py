"""docs/formats.md has every code that programs may ask for."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest

from onnxq.types.note import KINDS
from onnxq.types.translation import Effect
from onnxq.verify import FailureKind

TEXT = (Path(__file__).parents[1] / "docs" / "formats.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("title", "codes"), [("What became of a key of another tool", Effect), ("Why a file is refused", FailureKind)]
)
def test_the_table_of_codes_is_complete(title: str, codes: type[StrEnum]) -> None:
    section = TEXT.partition(f"### {title}\n")[2].partition("\n##")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [code.value for code in codes]


def test_every_kind_of_note_is_explained() -> None:
    line = next(line for line in TEXT.splitlines() if line.startswith("| `kinds` |"))
    assert [kind for kind in KINDS if f"`{kind}`: " not in line] == []
