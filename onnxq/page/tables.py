"""Tables as one offline file: no program, no address of the network, readable on a phone, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from onnxq.escapes import one_line
from onnxq.files import replace_file
from onnxq.version import __version__

Titled = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, columns (those of numbers begin with >) and rows."""

OPENED = 50
"""Rows of a table that is shown without a click."""

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 1rem auto; max-width: 75rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.2rem; } summary { cursor: pointer; font-weight: 600; padding: .4rem 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8886; }
th { white-space: nowrap; } .scroll td { min-width: 5rem; } .scroll td:first-child { min-width: 12rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
"""

POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write_tables(path: Path, title: str, facts: Iterable[tuple[str, str]], tables: Iterable[Titled]) -> None:
    """Write the page whole or not at all, and its folder if need be."""
    text = "\n".join(_lines(title, facts, tables)) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda stream: stream.write(text.encode("utf-8")))


def _lines(title: str, facts: Iterable[tuple[str, str]], tables: Iterable[Titled]) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>"
    yield f"<h1>{_text(title)}</h1>\n<table>"
    for label, value in facts:
        yield f'<tr><th scope="row">{_text(label)}</th><td>{_text(value)}</td></tr>'
    yield "</table>"
    for heading, columns, rows in tables:
        yield f"<details{' open' if len(rows) <= OPENED else ''}>"
        yield f"<summary>{_text(heading)} ({len(rows)})</summary>"
        yield '<div class="scroll" tabindex="0">\n<table>\n<thead><tr>'
        numbers = [' class="number"' if column.startswith(">") else "" for column in columns]
        for column, kind in zip(columns, numbers, strict=True):
            name = column.removeprefix(">")
            yield f'<th scope="col"{kind}>{_text(name)}</th>' if name else "<td></td>"
        yield "</tr></thead>\n<tbody>"
        for row in rows:
            cells = zip(row, numbers, strict=True)
            yield f"<tr>{''.join(f'<td{kind}>{_text(cell)}</td>' for cell, kind in cells)}</tr>"
        yield "</tbody>\n</table>\n</div>\n</details>"
    yield f"</main>\n<p>onnxq {__version__}</p>\n</body>\n</html>"


def _text(text: str) -> str:
    return escape(one_line(text))
