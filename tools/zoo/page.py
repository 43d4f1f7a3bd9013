"""Results as Markdown: a table of models by targets for each effort, reasons of refusals, failures, losses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.bench.results import markdown_table
from tools.zoo.catalogue import MODELS
from tools.zoo.results import Slot, Worse, worse_than
from tools.zoo.verdicts import Cell, Verdict

BEGIN, END = "<!-- zoo: begin -->", "<!-- zoo: end -->"


class PageError(ValueError):
    """A page without the marks between which the tables belong."""


def tables(now: dict[Slot, Cell], previous: dict[Slot, Cell], efforts: Sequence[int]) -> str:
    texts = [_of_effort(now, effort) for effort in efforts]
    texts.append(_worse(worse_than(previous, now)))
    return "\n".join(text for text in texts if text)


def write(path: Path, shown: str) -> None:
    """Replace what stands between the marks of a page."""
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise PageError(f"{path} has no '{BEGIN}' followed by '{END}'")
    path.write_text(f"{before}{BEGIN}\n\n{shown}\n{END}{after}", encoding="utf-8")


def _of_effort(now: dict[Slot, Cell], effort: int) -> str:
    cells = {slot: cell for slot, cell in now.items() if slot.effort == effort}
    if not cells:
        return ""
    targets = sorted({slot.target for slot in cells})
    reasons = _numbered(cells.values())
    rows = []
    for model in MODELS:
        own = {slot.target: cell for slot, cell in cells.items() if slot.model == model.name}
        if own:
            shown = {target: cell_text(own[target], reasons) if target in own else "" for target in targets}
            rows.append({"model": model.name, "kind": model.kind.value, **shown})
    lines = [f"### Effort {effort}", "", summary(cells.values()), "", markdown_table(rows)]
    if reasons:
        lines += ["Reasons, as printed:", "", *(f"{number}. {_one_line(text)}" for text, number in reasons.items()), ""]
    return "\n".join(lines)


def cell_text(cell: Cell, reasons: dict[str, int]) -> str:
    """`23.4 / 98%`: dB of the worst part and agreement of decisions; `r3`: refused for the third reason."""
    figures = [
        f"{cell.worst_db:.1f}" if cell.worst_db is not None else "exact" if cell.worst is not None else "",
        f"{cell.agreement:.0%}" if cell.agreement is not None else "",
    ]
    shown = " / ".join(figure for figure in figures if figure)
    number = reasons.get(reason_key(cell))
    if cell.verdict is Verdict.GOOD:
        return shown
    if cell.verdict is Verdict.LOW:
        return f"*{shown}*"
    if cell.verdict in (Verdict.REFUSED, Verdict.UNAVAILABLE):
        return f"r{number}"
    return " ".join(word for word in ("**FAILED**", shown, f"r{number}" if number else "") if word)


def reason_key(cell: Cell) -> str:
    """Reasons that differ in names and numbers alone stay apart: the table shows what is printed."""
    if not cell.verdict.failed:
        return cell.reason
    return f"{cell.verdict.value}: {cell.reason}" if cell.reason else ""


def summary(cells: Iterable[Cell]) -> str:
    found = list(cells)
    counts = {verdict: sum(cell.verdict is verdict for cell in found) for verdict in Verdict}
    told = [f"{count} {verdict.value}" for verdict, count in counts.items() if count]
    seconds = sum(cell.seconds for cell in found)
    return f"{len(found)} cells in {seconds / 60:.0f} minutes of commands: {', '.join(told)}."


def _numbered(cells: Iterable[Cell]) -> dict[str, int]:
    texts = dict.fromkeys(reason_key(cell) for cell in cells if reason_key(cell))
    return {text: number for number, text in enumerate(texts, start=1)}


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
    figures = cell_text(cell, {}) if cell.verdict in (Verdict.GOOD, Verdict.LOW, Verdict.DEAD_PART) else ""
    return " ".join(word for word in (cell.verdict.value, figures.strip("*")) if word)


def _one_line(text: str) -> str:
    shown = " ".join(text.split())
    return f"`{shown.replace('`', chr(39))}`"
