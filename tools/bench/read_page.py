"""Reads a page of results back, so that new results can be added to it without measuring everything again.

It is the reverse of `report.page`: tables, facts of the machines and commands are read, texts are left to the writer,
and so are tables that are made of the others. A page that is read and written again has the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.bench.report import GENERATED, MACHINES, MADE_ANEW, REPEAT, TITLES
from tools.bench.results import NOTHING, ReportError, Result, Row, Tables

BENCHMARKS = {title: benchmark for benchmark, title in TITLES.items()}
INTEGER, DECIMAL = re.compile(r"-?\d+"), re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?")


@dataclass(frozen=True)
class Table:
    """`number` is the machine it was measured on, counted from 1; `line` is where it begins."""

    benchmark: str
    number: int
    name: str
    rows: list[Row]
    line: int


def read_page(path: Path) -> list[Result]:
    """A result for each machine and benchmark of the page, in its order, some of them without tables.

    The page does not say which command made which table: the first result has all commands, one in a line. An empty
    cell is an empty text, so that every row has all columns in the order of the page.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    if not any(line.startswith(GENERATED) for line in lines[:5]):
        raise ReportError(f"{path}: not a page of `python -m tools.bench report`, so no results can be added to it")
    sections = _sections(lines)
    unknown = [title for title in sections if title not in (MACHINES, REPEAT, *BENCHMARKS)]
    missing = [title for title in (MACHINES, REPEAT) if title not in sections]
    if unknown or missing:
        named = f"the section '{unknown[0]}' is none of this tool's" if unknown else f"no section '{missing[0]}'"
        raise ReportError(f"{path}: {named}; a page that was written by hand cannot be added to")
    machines = _machines(path, lines, sections[MACHINES])
    titles = [title for title in sections if title in BENCHMARKS]
    tables = [table for title in titles for table in _tables(path, lines, title, sections[title])]
    if not machines or not titles:
        raise ReportError(f"{path}: no {'results' if machines else 'machine'} on it")
    for table in tables:
        if table.number > len(machines):
            raise ReportError(f"{path}, line {table.line}: machine {table.number} is not under '{MACHINES}'")
    results = [
        Result(BENCHMARKS[title], "", machine, _of(tables, BENCHMARKS[title], number))
        for number, machine in enumerate(machines, 1)
        for title in titles
    ]
    return [replace(results[0], command=_commands(path, lines, sections[REPEAT])), *results[1:]]


def _sections(lines: Sequence[str]) -> dict[str, range]:
    """Title -> its lines."""
    starts = [number for number, line in enumerate(lines) if line.startswith("## ")]
    ends = [*starts[1:], len(lines)]
    return {lines[start][3:]: range(start + 1, end) for start, end in zip(starts, ends, strict=True)}


def _machines(path: Path, lines: Sequence[str], section: range) -> list[dict[str, str]]:
    found = [block for block in _blocks(lines, section) if lines[block[0]].startswith("|")]
    if len(found) != 1:
        raise ReportError(f"{path}: {len(found)} tables under '{MACHINES}' where one is expected")
    header, rows = _cells(path, lines, found[0])
    return [{row[0]: row[column] for row in rows if row[column]} for column in range(1, len(header))]


def _tables(path: Path, lines: Sequence[str], title: str, section: range) -> Iterator[Table]:
    number, name = 1, ""
    for block in _blocks(lines, section):
        first = lines[block[0]]
        if first.startswith("### "):
            name = first.removeprefix("### ").removeprefix(f"{title}: ")
        elif machine := re.fullmatch(r"Machine (\d+):", first):
            number, name = int(machine[1]), ""
        elif first.startswith("|") and name not in MADE_ANEW.get(BENCHMARKS[title], ()):
            header, cells = _cells(path, lines, block)
            rows = [dict(zip(header, map(_value, row), strict=True)) for row in cells]
            yield Table(BENCHMARKS[title], number, name, rows, block[0] + 1)
        elif name and not first.startswith("|") and first != NOTHING:
            raise ReportError(f"{path}, line {block[0] + 1}: text where the table '{name}' is expected")


def _blocks(lines: Sequence[str], section: range) -> Iterator[range]:
    """Runs of lines that are not empty."""
    start = section.start
    for number in range(section.start, section.stop + 1):
        if number == section.stop or not lines[number]:
            if number > start:
                yield range(start, number)
            start = number + 1


def _cells(path: Path, lines: Sequence[str], block: range) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the texts of each row."""
    texts = [lines[number] for number in block]
    header = _split(texts[0])
    for number, text in zip(block, texts, strict=True):
        whole = text.startswith("| ") and text.endswith(" |") and len(_split(text)) == len(header)
        if number == block.start + 1:
            whole = text == "|" + "---|" * len(header)
        if not whole or len(texts) < 2:
            raise ReportError(
                f"{path}, line {number + 1}: not a row of a table with {len(header)} columns: {text[:60]}"
            )
    return header, [_split(text) for text in texts[2:]]


def _split(text: str) -> list[str]:
    return [cell.replace("\\|", "|") for cell in text[2:-2].split(" | ")]


def _value(text: str) -> int | float | str:
    """A number where writing it gives the same text: 1.00 stays a text."""
    kinds = ((INTEGER, int), (DECIMAL, float))
    value = next((kind(text) for pattern, kind in kinds if pattern.fullmatch(text)), text)
    return value if str(value) == text else text


def _of(tables: Sequence[Table], benchmark: str, number: int) -> Tables:
    return {table.name: table.rows for table in tables if (table.benchmark, table.number) == (benchmark, number)}


def _commands(path: Path, lines: Sequence[str], section: range) -> str:
    """What stands between the marks of the shell, without the last line, which makes the page."""
    marks = [number for number in section if lines[number].startswith("```")]
    if len(marks) != 2:
        raise ReportError(f"{path}: no block of commands under '{REPEAT}'")
    return "\n".join(lines[marks[0] + 1 : marks[1] - 1])
