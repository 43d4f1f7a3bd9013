"""`onnxq bench`: how long a float model and quantized ones take, in turns, as a whole and layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_table, say

if TYPE_CHECKING:
    from onnxq.bench import Bench, Contender

ROWS = 10


def _engines(incomplete: str) -> list[str]:
    from onnxq.runtime.engines import ENGINES

    return [name for name in ENGINES.names() if name.startswith(incomplete)]


def bench(
    float_model: Annotated[
        Path, typer.Argument(metavar="FLOAT", help="The float model.", show_default=False, callback=options.settled)
    ],
    quantized: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[QUANTIZED]...",
            help="Quantized models, or folders of runs, whose report.html gets the latency of each layer.",
            show_default=False,
        ),
    ] = None,
    *,
    data: options.DataOption = None,
    preprocess: options.PreprocessOption = None,
    shape: options.ShapeOption = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", help="First size of every input, where the model leaves it free.", metavar="N", min=1),
    ] = None,
    threads: Annotated[int, typer.Option("--threads", help="Threads of a model.", metavar="N", min=1)] = 1,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            help="Run in this engine; by default in all that are installed. Repeatable.",
            metavar="NAME",
            show_default=False,
            autocompletion=_engines,
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", help="Rounds, in each of which every model runs in turn.", metavar="N", min=1)
    ] = 30,
    warm_up: Annotated[
        int, typer.Option("--warm-up", help="First runs of each model, which do not count.", metavar="N", min=1)
    ] = 3,
    seconds: Annotated[
        float,
        typer.Option("--seconds", help="End the rounds of an engine behind so many seconds.", metavar="SECONDS", min=0),
    ] = 30.0,
    wall: Annotated[
        bool,
        typer.Option("--wall", help="Count the time that passes, with one thread too, instead of processor time."),
    ] = False,
    layers: Annotated[bool, typer.Option("--layers/--no-layers", help="Measure each layer as well.")] = True,
    rows: Annotated[int, typer.Option("--rows", help="Rows to show of each table.", metavar="N", min=1)] = ROWS,
    everything: Annotated[bool, typer.Option("--all", help="Every layer.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write an offline page with every row into this file, or folder.", metavar="FILE"),
    ] = None,
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Measure how long FLOAT and quantized models take, in turns, what each layer takes, and which stayed float.

    Without data (-d) inputs are random numbers. Every figure is a median with its 95 % confidence interval.
    """
    from onnxq.bench import bench as run
    from onnxq.bench.text import tables
    from onnxq.cli.artifacts import output_file
    from onnxq.cli.progress import run_bar
    from onnxq.cli.settings import load_plugins
    from onnxq.cli.shapes import read_shapes
    from onnxq.errors import ConfigError
    from onnxq.graph import Graph
    from onnxq.page.tables import write_tables

    load_plugins(plugin)
    if shape and data is not None:
        raise ConfigError("--shape gives random inputs their sizes: the data of -d has its own")
    given = list(quantized or ())
    page = None if html is None else output_file(html, "bench.html", float_model, *given)
    graph = Graph.load(float_model)
    with run_bar("bench", quiet=quiet) as progress:
        found = run(
            float_model,
            *map(_contender, given),
            data=data,
            engines=engine,
            threads=threads,
            batch=batch,
            rounds=rounds,
            warm_up=warm_up,
            seconds=seconds,
            wall=wall,
            shapes=read_shapes(shape, graph),
            preprocess=preprocess,
            layers=layers,
            progress=progress,
        )
    for note in found.notes:
        say(note, quiet=quiet)
    # Files first: a pager that is closed early ends the program at its next line.
    if page is not None:
        write_tables(page, f"Latency of {float_model.name}", _facts(found), list(tables(found)))
    drawn = [number for number, folder in enumerate(given) if layers and folder.is_dir()]
    lines = [_put_into_page(found, number, given[number], quiet=quiet) for number in drawn]
    if as_json:
        print_json(found.to_json())
    elif not quiet:
        _show(found, None if everything else rows)
    for line in [*([] if page is None else [f"written: {page}"]), *lines]:
        say(line, quiet=quiet)


def _contender(path: Path) -> Contender:
    """A file, or the model of a folder with its plan."""
    from onnxq.bench import Contender
    from onnxq.cli.artifacts import PLAN_NAME, read_plan
    from onnxq.cli.runs import refuse_no_run
    from onnxq.pipeline.delivered import model_in

    options.settled(path)
    if path.is_dir():
        refuse_no_run(path)
    folder = path if path.is_dir() else path.parent
    model = model_in(folder) if path.is_dir() else path
    planned = model == model_in(folder) and (folder / PLAN_NAME).is_file()
    return Contender(str(model), model, read_plan(folder) if planned else None)


def _show(found: Bench, rows: int | None) -> None:
    from onnxq.bench.text import tables

    for title, columns, cells in tables(found):
        print_table(title, columns, cells[:rows])
        if rows is not None and len(cells) > rows:
            say(f"{len(cells) - rows} more not shown; --all shows them, --rows N some")


def _facts(found: Bench) -> list[tuple[str, str]]:
    from onnxq.bench.text import title_of

    return [("measured in", title_of(found, engine)) for engine in found.engines]


def _put_into_page(found: Bench, number: int, folder: Path, *, quiet: bool) -> str:
    """Give the page of a run what was measured of its model, and say so."""
    from onnxq.bench.page import latency_json
    from onnxq.cli.drawn_page import draw_again
    from onnxq.cli.runs import read_run
    from onnxq.output_folder import claim, staging
    from onnxq.page.document import write_page
    from onnxq.page.write import title_of
    from onnxq.pipeline.artifacts import PAGE

    with claim(folder) as output:
        run = read_run(folder)
        data = draw_again(run, float_model=None, further={"latency": latency_json(found, number + 1)}, quiet=quiet)
        with staging(output) as stage:
            write_page(stage / PAGE, data, title_of(run))
    return f"written: {folder / PAGE}"
