"""`onnxq diff`: what changed from one delivered folder to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_warning, say

ROWS = 10


def diff(
    before: Annotated[
        Path,
        typer.Argument(metavar="BEFORE", help="The folder of a run.", show_default=False, callback=options.settled),
    ],
    after: Annotated[
        Path,
        typer.Argument(metavar="AFTER", help="The folder of another.", show_default=False, callback=options.settled),
    ],
    rows: Annotated[int, typer.Option("--rows", help="Rows to show of each table.", metavar="N", min=1)] = ROWS,
    everything: Annotated[
        bool, typer.Option("--all", help="Every node, tensor and parameter that differs, each in a row.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write an offline page with every row into this file, or folder.", metavar="FILE"),
    ] = None,
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show what changed from the run in BEFORE to the one in AFTER: settings, plan, parameters, accuracy, size, speed.

    What is equal is counted, what changed in the same way is one row. --json has all of it.
    """
    from onnxq.cli.artifacts import output_file
    from onnxq.cli.differences import diff_tables, print_diff, summary, title_of
    from onnxq.cli.runs import read_run, refuse_no_run
    from onnxq.cli.settings import load_plugins
    from onnxq.diff import diff_runs
    from onnxq.diff.runs import Models
    from onnxq.page.tables import write_tables
    from onnxq.pipeline.artifacts import PAGE

    load_plugins(plugin)
    for folder in (before, after):
        refuse_no_run(folder)
    page = None if html is None else output_file(html, "diff.html", before / PAGE, after / PAGE)
    found = diff_runs(read_run(before), read_run(after))
    if found.models is Models.OTHER:
        print_warning(
            f"these are runs of different models: only {found.common_nodes} nodes have a name in both. What has the "
            "same name is compared all the same"
        )
    if page is not None:  # first: a pager that is closed early ends the program at its next line
        write_tables(page, title_of(found), summary(found), diff_tables(found, grouped=False))
    if as_json:
        print_json(found.to_json())
    else:
        print_diff(found, None if everything else rows)
    if page is not None:
        say(f"written: {page}")
