"""docs/reproducibility.md: every promise names tests, and these exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.examples.runnable import ROOT

PAGE = ROOT / "docs" / "reproducibility.md"
COLUMNS = ["promise", "processor", "onnxruntime", "observed", "threads", "batch", "held by"]


def rows() -> list[list[str]]:
    """The cells of all rows, headings left out."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row != COLUMNS and set(row) != {"---"}]


def missing(name: str) -> str | None:
    """What is wrong with a test's name such as tests/a.py::test_b; None where it exists."""
    path, _, function = name.partition("::")
    if not (ROOT / path).is_file():
        return f"{path} does not exist"
    defined = {node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)}
    return None if function in defined and function.startswith("test_") else f"{path} has no {function}"


def named(text: str) -> list[str]:
    return re.findall(r"`(tests/[^`]+)`", text)


def test_all_tables_have_the_same_columns() -> None:
    assert len(rows()) > 20
    assert all(len(row) == len(COLUMNS) for row in rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_promise_names_tests_that_exist(row: list[str]) -> None:
    tests = named(row[-1])
    assert tests
    assert [found for name in tests if (found := missing(name))] == []


def test_a_test_that_is_gone_is_found() -> None:
    here = Path(__file__).relative_to(ROOT)
    assert missing(f"{here}::test_a_test_that_is_gone_is_found") is None
    assert missing(f"{here}::test_that_nobody_wrote") is not None
    assert missing("tests/no_such_file.py::test_a") is not None
