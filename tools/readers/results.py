"""What the tests of the readers found: one JSON line per figure, and the table that is made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.bench.results import markdown_table
from tools.readers.catalogue import READERS

RESULTS_VARIABLE = "ONNXQ_READER_RESULTS"
"""Names the folder that figures are written to; without it they are not kept."""

BLOCK = re.compile(r"(<!-- measured: readers -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Finding:
    """A figure that a reader gave for a file: `what` says what was compared, in which unit."""

    reader: str
    version: str
    target: str
    model: str
    what: str
    figure: str

    def append_to(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{self.reader}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self)) + "\n")


def read_findings(folder: Path) -> list[Finding]:
    """The findings in a folder, in the order of the catalogue; of the same question the last answer counts."""
    latest: dict[tuple[str, ...], Finding] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            finding = Finding(**json.loads(line))
            latest[finding.reader, finding.target, finding.model, finding.what] = finding
    order = list(READERS)
    return sorted(latest.values(), key=lambda f: (order.index(f.reader), f.target, f.what, f.model))


def figure_text(figure: float | int | str) -> str:
    return f"{figure:.4g}" if isinstance(figure, float) else str(figure)


def findings_table(findings: Sequence[Finding], versions: Iterable[str]) -> str:
    """The table with a row for each question, what it was measured with, and which readers were not there."""
    answers: dict[tuple[str, str, str], list[str]] = {}
    for finding in findings:
        question = (f"{finding.reader} {finding.version}", finding.target, finding.what)
        answers.setdefault(question, []).append(f"{finding.model}: {finding.figure}")
    rows = [
        {"reader": reader, "target": target, "what": what, "figures": "; ".join(figures)}
        for (reader, target, what), figures in answers.items()
    ]
    text = f"\n{markdown_table(rows)}\nMeasured with {', '.join(versions)}.\n"
    missing = [name for name in READERS if name not in {finding.reader for finding in findings}]
    return text + (f"\nNot run: {', '.join(missing)}.\n" if missing else "")


def with_table(page: str, table: str) -> str:
    """The page with its table replaced; a page without the place for one is an error."""
    if not BLOCK.search(page):
        raise ValueError("the page has no line '<!-- measured: readers -->' with '<!-- end -->' behind it")
    return BLOCK.sub(lambda found: found[1] + table + found[2], page)
