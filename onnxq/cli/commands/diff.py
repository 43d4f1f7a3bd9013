"""`onnxq diff`: what changed from one delivered folder to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_warning

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
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show what changed from the run in BEFORE to the one in AFTER: settings, plan, parameters, accuracy, size, speed.

    What is equal is counted, what changed in the same way is one row. --json has all of it.
    """
    from onnxq.cli.differences import print_diff
    from onnxq.cli.runs import read_run, refuse_no_run
    from onnxq.cli.settings import load_plugins
    from onnxq.diff import diff_runs
    from onnxq.diff.runs import Models

    load_plugins(plugin)
    for folder in (before, after):
        refuse_no_run(folder)
    found = diff_runs(read_run(before), read_run(after))
    if found.models is Models.OTHER:
        print_warning(
            f"these are runs of different models: only {found.common_nodes} nodes have a name in both. What has the "
            "same name is compared all the same"
        )
    if as_json:
        print_json(found.to_json())
    else:
        print_diff(found, None if everything else rows)
