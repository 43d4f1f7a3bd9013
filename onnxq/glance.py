"""Values at a glance: one line for `repr`, a small table for a notebook.

Names come from models and may hold anything: they are cut, and shown as text (`onnxq.escapes`), never as markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from onnxq.escapes import one_line

LONGEST_NAME = 40
"""Characters of a name in a line; the middle of a longer one is left out, because names of a model begin alike."""

MOST_NAMED = 3
"""Members of a list that a line names."""

MOST_ROWS = 12
"""Rows of a table in a notebook; the value itself has all of them."""


def short_name(name: str, most: int = LONGEST_NAME) -> str:
    """A name that fits into a line."""
    shown = one_line(name)
    half = (most - 3) // 2
    return shown if len(shown) <= most else f"{shown[:half]}...{shown[-half:]}"


def quoted(name: str) -> str:
    return f"'{short_name(name)}'"


def counted(count: int, one: str, several: str | None = None) -> str:
    """1 warning, 12 warnings."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def tally(values: Iterable[object]) -> str:
    """How often each value is there, the most frequent first; the rest of a long list as a number."""
    ordered = Counter(map(str, values)).most_common()
    parts = [f"{count:,} {short_name(value)}" for value, count in ordered[:MOST_NAMED]]
    rest = sum(count for _, count in ordered[MOST_NAMED:])
    return ", ".join([*parts, *([f"{rest:,} others"] if rest else [])])


def decibels(value: float | str) -> str:
    """An SQNR as in the report, where infinity (equal outputs) is a string."""
    number = float(value)
    return "equal to float" if number == float("inf") else f"{number:.1f} dB"


def short_repr(kind: str, about: str, *facts: str) -> str:
    """The line of a value: its class, what it is about, and facts that are not empty."""
    return f"<{f'{kind} {about}'.rstrip()}: {', '.join(fact for fact in facts if fact)}>"


_CELL = "text-align: left; vertical-align: top"


def notebook_html(
    title: str,
    facts: Iterable[tuple[str, str]] = (),
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    *,
    of: int | None = None,
) -> str:
    """A title, facts with their labels and a table, as one element without scripts and addresses.

    Everything is escaped here. `of` is the number of all rows, where `rows` are the first of them.
    """
    pairs = "".join(f"<tr>{_cell(label, 'th')}{_cell(value)}</tr>" for label, value in facts)
    table = ""
    if rows:
        shown = rows[:MOST_ROWS]
        head = "".join(_cell(column, "th") for column in columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        rest = (len(rows) if of is None else of) - len(shown)
        table += f"<div>and {rest:,} more</div>" if rest > 0 else ""
    above = f"<table><tbody>{pairs}</tbody></table>" if pairs else ""
    return f'<div class="onnxq"><div><b>{_text(title)}</b></div>{above}{table}</div>'


def _cell(text: str, tag: str = "td") -> str:
    return f'<{tag} style="{_CELL}">{_text(text)}</{tag}>'


def _text(text: str) -> str:
    return escape(one_line(text))
