"""What a command says after a run: the report as text or JSON, warnings, and what translation has made of keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from onnxq.cli.console import console, print_error, print_json, print_warning
from onnxq.json_file import JsonMapping
from onnxq.pipeline.summary import write_rows, write_summary
from onnxq.types.note import folded

if TYPE_CHECKING:
    from onnxq.compat import Translation


def show_report(report: JsonMapping, model: Path, written: Path, *, as_json: bool, quiet: bool) -> None:
    """The report in the form that was asked for; warnings always reach stderr."""
    if as_json:
        print_json(report)
    elif not quiet:
        write_summary(console(), report, model, written)
    for warning in folded(report["warnings"]):
        print_warning(str(warning))


def fail_on_warnings(report: JsonMapping, out: Path, *, strict: bool) -> None:
    """With --strict a warning is a failure, although the files passed every check and were written."""
    count = len(report["warnings"])
    if strict and count:
        warnings = "1 warning" if count == 1 else f"{count} warnings"
        print_error(f"{warnings} and --strict; the files passed their checks and are in {out}")
        raise typer.Exit(1)


def print_translation(translation: Translation) -> None:
    """What each key of another tool's configuration has become."""
    write_rows(console(), translation.tool, [(row.key, row.value, row.became) for row in translation.rows])
