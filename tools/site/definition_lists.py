"""Tables in docstrings as definition lists of Markdown.

The docstrings of onnxq say what fields mean in aligned lines, which read well in an editor:

    samples        feeds to fit to; those held out are not among them
    memory_limit   bytes of activations to hold at once, where
                   lines go on below the text

Markdown would fold them into one paragraph.
"""

from __future__ import annotations

import re

ROW = re.compile(r"(?P<term>`?[\w.*]+`?(?:, `?[\w.*]+`?)*)(?P<gap> {2,}| (?= ))(?P<text>\S.*)$")


def with_definition_lists(text: str) -> str:
    """The text with each group of two or more aligned lines as a definition list."""
    lines = text.splitlines()
    out: list[str] = []
    at = 0
    while at < len(lines):
        rows, end = _table(lines, at)
        if len(rows) < 2:
            out.append(lines[at])
            at += 1
            continue
        if out and out[-1].strip():
            out.append("")
        for term, said in rows:
            shown = term if "`" in term else ", ".join(f"`{name}`" for name in term.split(", "))
            out += [shown, f":   {said}", ""]
        at = end
    return "\n".join(out)


def _table(lines: list[str], start: int) -> tuple[list[tuple[str, str]], int]:
    """The rows (term, text) of the table that begins at a line, and the line behind it."""
    rows: list[tuple[str, str]] = []
    column = None
    at = start
    while at < len(lines):
        line = lines[at]
        match = ROW.match(line)
        if match is not None and (column is None or match.start("text") == column):
            column = match.start("text")
            rows.append((match["term"], match["text"].strip()))
        elif rows and column is not None and line.startswith(" " * column) and line.strip():
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}")
        else:
            break
        at += 1
    return rows, at
