"""The map of the code and the decisions name packages and files that exist, and the map leaves none of them out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.runnable import ROOT
from tools.check_layers import MAY_IMPORT, PACKAGE, SUBUNITS

MAP = ROOT / "docs" / "architecture.md"
DECISIONS = ROOT / "docs" / "decisions"
PATH = re.compile(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|/))`")
UNMAPPED = {"__init__", "__main__", "targets.dialects"}


@pytest.mark.parametrize("page", [MAP, *sorted(DECISIONS.glob("*.md"))], ids=lambda page: page.stem)
def test_named_files_and_folders_exist(page: Path) -> None:
    named = PATH.findall(page.read_text(encoding="utf-8"))
    homes = (ROOT / PACKAGE, ROOT, ROOT / "tools")
    assert [path for path in named if not any((home / path).exists() for home in homes)] == []


def test_the_map_has_every_package() -> None:
    folders = {unit: folder for folder, unit in SUBUNITS.items()}
    text = MAP.read_text(encoding="utf-8")
    units = {unit: folders.get(unit, unit) for unit in MAY_IMPORT if unit not in UNMAPPED}
    assert [unit for unit, name in units.items() if not re.search(rf"`{name}(`|/|\.py)", text)] == []


def test_the_index_has_every_decision_under_its_title() -> None:
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    pages = sorted(path for path in DECISIONS.glob("*.md") if path.name != "README.md")
    assert [int(path.name[:3]) for path in pages] == list(range(1, len(pages) + 1))
    for path in pages:
        number, _, title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").partition(". ")
        assert f"| {number} | [{title}]({path.name}) |" in index
