"""`onnxq report`: report.html for a run whose files are there already, or for a search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import say


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="The folder of a run of quantize, qat or search.",
            show_default=False,
            callback=options.settled,
        ),
    ],
    data: options.DataOption = None,
    preprocess: options.PreprocessOption = None,
    samples: Annotated[int | None, typer.Option("--samples", help="Use at most N samples.", metavar="N", min=1)] = None,
    float_model: Annotated[
        Path | None,
        typer.Option(
            "--float",
            help="The float model of the run; else the one that report.json names, where it is there.",
            metavar="MODEL",
            callback=options.settled,
        ),
    ] = None,
    plugin: options.PluginOption = None,
    quiet: options.QuietOption = False,
) -> None:
    """Draw report.html for the run in FOLDER, of whichever version of onnxq.

    What an earlier page of the run holds is kept. With data (-d), histograms and the noise of layers are measured anew.
    """
    from onnxq.cli.drawn_page import draw_again
    from onnxq.cli.runs import read_run, refuse_no_run
    from onnxq.cli.settings import load_plugins
    from onnxq.output_folder import claim, staging
    from onnxq.page.content import search_page
    from onnxq.page.document import write_page
    from onnxq.page.write import title_of
    from onnxq.pipeline.artifacts import PAGE, REPORT

    load_plugins(plugin)
    refuse_no_run(folder, search=True)
    with claim(folder) as output:
        if not (folder / REPORT).is_file():
            found = search_page(folder)
            title = f"search for {found['backend']}"
        else:
            run = read_run(folder)
            found = draw_again(
                run, data=data, preprocess=preprocess, samples=samples, float_model=float_model, quiet=quiet
            )
            title = title_of(run)
        with staging(output) as stage:
            write_page(stage / PAGE, found, title)
    say(f"written: {folder / PAGE}", quiet=quiet)
