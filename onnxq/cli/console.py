"""Where text goes: results to stdout, everything said on the way to stderr.

Names are printed as they are, but for characters that a terminal would obey (`onnxq.escapes`): nothing that comes from
a model or a file can move the cursor, or begin a line of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO, cast

from rich.console import Console
from rich.text import Text

from onnxq.cli.log import note
from onnxq.escapes import lines
from onnxq.text_tables import PIPE_WIDTH, Cell, write_pairs, write_table


def console(*, stderr: bool = False) -> Console:
    """A console that takes nothing for markup: tensor names hold brackets and colons."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    beside_bar = cast(TextIO, _AboveBar(stream)) if hasattr(stream, "rich_proxied_file") else None
    return Console(stderr=stderr, file=beside_bar, markup=False, emoji=False, highlight=False, width=width)


class _AboveBar:
    """The stream that rich puts in the place of stderr while a bar is drawn: what it gets stands above the bar.

    A console of rich would look through it, and write into the line of the bar.
    """

    def __init__(self, stream: TextIO) -> None:
        self.write, self.flush, self.isatty, self.encoding = stream.write, stream.flush, stream.isatty, stream.encoding


def print_error(message: str) -> None:
    note("error", message)
    _print_labelled("error", "bold red", message)


def print_warning(message: str) -> None:
    note("warning", message)
    _print_labelled("warning", "yellow", message)


def say(message: str, *, quiet: bool = False) -> None:
    """A line for the person who waits, on stderr."""
    if not quiet:
        console(stderr=True).print(lines(message), soft_wrap=True)


def print_json(data: Any) -> None:
    """Exactly one JSON document on stdout; escapes keep it readable in every encoding."""
    text = json.dumps(data, indent=2, allow_nan=False)
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")  # the one control character that is no escape in JSON


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """A table on stdout, see `write_table`."""
    write_table(console(), title, columns, rows)


def print_pairs(title: str, pairs: Iterable[tuple[str, Cell]]) -> None:
    """Labels with their values on stdout; a label that repeats is printed once."""
    write_pairs(console(), title, pairs)


def print_blank_line() -> None:
    console().print()


def _print_labelled(label: str, style: str, message: str) -> None:
    console(stderr=True).print(Text.assemble((f"{label}: ", style), lines(message)), soft_wrap=True)
