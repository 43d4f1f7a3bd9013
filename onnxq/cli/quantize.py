"""`onnxq quantize`: the whole flow, a summary for people or the report for programs."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxq.cli import options
from onnxq.cli.progress import stage_bars


def quantize(
    model: options.ModelArgument,
    backend: options.BackendOption,
    out: options.FolderOption,
    data: options.DataOption = None,
    preprocess: options.PreprocessOption = None,
    config: options.ConfigOption = None,
    observer: options.ObserverOption = None,
    weight_observer: options.WeightObserverOption = None,
    skip: options.SkipOption = None,
    samples: options.SamplesOption = None,
    random: options.RandomOption = None,
    min_sqnr: Annotated[
        float | None, typer.Option("--min-sqnr", help="An output below this many dB fails the run.", metavar="DB")
    ] = None,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    strict: options.StrictOption = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Quantize MODEL for a target and write the checked files into a folder."""
    from onnxq.cli.artifacts import check_folder
    from onnxq.cli.data import data_warnings, open_data
    from onnxq.cli.settings import load_plugins, read_settings
    from onnxq.cli.summary import fail_on_warnings, show_report
    from onnxq.graph import Graph
    from onnxq.pipeline import quantize as run

    load_plugins(plugin)
    settings = read_settings(
        config,
        skip=skip,
        observer=observer,
        weight_observer=weight_observer,
        samples=samples,
        min_sqnr=min_sqnr,
        preprocess=preprocess,
    )
    check_folder(out, model)
    graph = Graph.load(model)
    dataset = open_data(graph, data, random, settings.samples, settings.preprocess)
    with stage_bars(quiet=quiet) as progress:
        result = run(
            graph,
            backend=backend,
            data=dataset,
            config=settings,
            out=out,
            passes=passes or (),
            progress=progress,
            warnings=data_warnings(random),
        )
    show_report(result.report, model, result.model, as_json=as_json, quiet=quiet)
    fail_on_warnings(result.report, out, strict=strict)
