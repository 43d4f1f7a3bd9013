"""Results as Markdown: a table of models by targets for each effort, reasons of refusals, failures, losses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.bench.results import markdown_table
from tools.zoo.catalogue import MODELS
from tools.zoo.refusals import shortened
from tools.zoo.results import Slot, Worse, worse_than
from tools.zoo.verdicts import Cell, Verdict

TABLES, MODEL_LIST = "zoo", "zoo models"
"""Names of the marks in the page."""
SHOWN_LETTERS = 400
"""Of a reason."""


class PageError(ValueError):
    """A page without the marks between which the tables belong."""


def tables(now: dict[Slot, Cell], previous: dict[Slot, Cell], efforts: Sequence[int]) -> str:
    texts = [_of_effort(now, effort) for effort in efforts]
    texts.append(_worse(worse_than(previous, now)))
    return "\n".join(text for text in texts if text)


def model_list() -> str:
    """What the models are and how they are obtained."""
    return markdown_table([{"model": m.name, "kind": m.kind.value, "from": f"`{m.origin}`"} for m in MODELS])


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def read(path: Path, name: str) -> str:
    """What stands between two marks of a page."""
    return _divided(path, name)[1].strip() + "\n"


def write(path: Path, name: str, shown: str) -> None:
    """Replace what stands between two marks of a page."""
    before, _, after = _divided(path, name)
    begin, end = marks(name)
    path.write_text(f"{before}{begin}\n\n{shown.strip()}\n\n{end}{after}", encoding="utf-8")


def _divided(path: Path, name: str) -> tuple[str, str, str]:
    begin, end = marks(name)
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    between, closed, after = rest.partition(end)
    if not found or not closed:
        raise PageError(f"{path} has no '{begin}' followed by '{end}'")
    return before, between, after


def _of_effort(now: dict[Slot, Cell], effort: int) -> str:
    cells = {slot: cell for slot, cell in now.items() if slot.effort == effort}
    if not cells:
        return ""
    targets = sorted({slot.target for slot in cells})
    reasons = Reasons(cells.values())
    rows = []
    for model in MODELS:
        own = {slot.target: cell for slot, cell in cells.items() if slot.model == model.name}
        if own:
            shown = {target: cell_text(own[target], reasons) if target in own else "" for target in targets}
            rows.append({"model": model.name, "kind": model.kind.value, **shown})
    lines = [f"### Effort {effort}", "", summary(cells.values()), "", markdown_table(rows)]
    if reasons.texts:
        lines += [
            "Reasons, as printed for the first of the cells that have the same one but for names and figures:",
            "",
        ]
        lines += [*(f"{number}. {_one_line(text)}" for number, text in enumerate(reasons.texts, start=1)), ""]
    return "\n".join(lines)


class Reasons:
    """What was printed, numbered; texts that differ in figures and names alone are one, as are those with one cause."""

    def __init__(self, cells: Iterable[Cell] = ()) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        for cell in cells:
            text = _reason(cell)
            if text and self._numbers.setdefault(_kind(text), len(self.texts) + 1) > len(self.texts):
                self.texts.append(text)

    def number(self, cell: Cell) -> int | None:
        return self._numbers.get(_kind(_reason(cell)))


def _reason(cell: Cell) -> str:
    if not cell.verdict.failed:
        return cell.reason
    return f"{cell.verdict.value}: {cell.reason}" if cell.reason else ""


def _kind(text: str) -> str:
    """A reason without what is its model's own: of a result that is too low, the cause."""
    cause = _CAUSE.search(text)
    return _OWN.sub("0", text if cause is None else _MORE.sub("", cause.group()))


_CAUSE = re.compile(r"^\s*cause: .*$", re.MULTILINE)
_MORE = re.compile(r" \(and \d+ more alike\)")
_OWN = re.compile(r"'[^']*'|-?\d+(?:\.\d+)?")
"""Names and figures."""


def cell_text(cell: Cell, reasons: Reasons) -> str:
    """`23.4 / 98%`: dB of the worst part and agreement of decisions; `r3`: refused for the third reason."""
    figures = [
        f"{cell.worst_db:.1f}" if cell.worst_db is not None else "",
        f"{cell.agreement:.0%}" if cell.agreement is not None else "",
    ]
    shown = " / ".join(figure for figure in figures if figure)
    number = reasons.number(cell)
    if cell.verdict is Verdict.GOOD:
        return shown
    if cell.verdict is Verdict.LOW:
        return f"*{shown}*"
    if cell.verdict in (Verdict.REFUSED, Verdict.UNAVAILABLE):
        return f"r{number}"
    return " ".join(word for word in ("**FAILED**", shown, f"r{number}" if number else "") if word)


_CELL_TEXT = re.compile(
    r"(?:\*\*FAILED\*\*)?\s*\*?(?:(?:-?inf|nan|-?\d+\.\d)(?: / \d+%)?|\d+%)?\*?(?:\s*r\d+)?",
)


def is_cell_text(text: str) -> bool:
    """Whether `cell_text` writes such a thing; a cell that was not run is empty."""
    return _CELL_TEXT.fullmatch(text) is not None


def summary(cells: Iterable[Cell]) -> str:
    found = list(cells)
    counts = {verdict: sum(cell.verdict is verdict for cell in found) for verdict in Verdict}
    told = [f"{count} {verdict.value}" for verdict, count in counts.items() if count]
    seconds = sum(cell.seconds for cell in found)
    codes = ", ".join(sorted({cell.key.code for cell in found}))
    return f"{len(found)} cells in {seconds / 60:.0f} minutes of commands, code {codes}: {', '.join(told)}."


def _worse(losses: Sequence[Worse]) -> str:
    if not losses:
        return "### Worse than last time\n\nNo cell.\n"
    rows = [
        {
            "model": loss.slot.model,
            "target": loss.slot.target,
            "effort": loss.slot.effort,
            "before": _told(loss.before),
            "now": _told(loss.now),
        }
        for loss in losses
    ]
    return "### Worse than last time\n\n" + markdown_table(rows)


def _told(cell: Cell) -> str:
    figures = cell_text(cell, Reasons()) if cell.verdict in (Verdict.GOOD, Verdict.LOW, Verdict.DEAD_PART) else ""
    shown = figures.removeprefix("**FAILED** ").strip("*")  # the verdict says it
    return " ".join(word for word in (cell.verdict.value, shown) if word)


def _one_line(text: str) -> str:
    shown = shortened(" ".join(text.split()), SHOWN_LETTERS)
    return f"`{shown.replace('`', chr(39))}`"
