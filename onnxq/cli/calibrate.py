"""`onnxq calibrate`: scales and zero points for a plan, from data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_warning, say
from onnxq.cli.progress import stage_bars


def calibrate(
    model: options.ModelArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Write the parameters into this file, such as qparams.json.")
    ],
    backend: Annotated[
        str | None, typer.Option("--backend", "-b", help="Target; with --plan only for a backend file.py.")
    ] = None,
    data: options.DataOption = None,
    preprocess: options.PreprocessOption = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Plan from 'onnxq place'; made anew when left out.")
    ] = None,
    config: options.ConfigOption = None,
    observer: options.ObserverOption = None,
    weight_observer: options.WeightObserverOption = None,
    skip: options.SkipOption = None,
    samples: options.SamplesOption = None,
    random: options.RandomOption = None,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    strict: options.StrictOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Find scale and zero point of every tensor in a plan by running MODEL on data.

    Without --plan the plan is made first and written as plan.json beside the parameters.
    """
    from onnxq.cli.artifacts import PLAN_NAME, QPARAMS_NAME, output_file, read_plan, write_output
    from onnxq.cli.data import chosen_preprocess, data_warnings, open_data
    from onnxq.cli.planned import prepare_again, with_observers
    from onnxq.cli.settings import load_plugins, read_settings
    from onnxq.errors import ConfigError
    from onnxq.graph import Graph
    from onnxq.pipeline import run_calibration
    from onnxq.prepare import make_plan, prepare

    load_plugins(plugin)
    settings = read_settings(
        config,
        skip=skip,
        observer=observer,
        weight_observer=weight_observer,
        samples=samples,
        preprocess=preprocess,
    )
    target = output_file(out, QPARAMS_NAME, model, *([] if plan is None else [plan]))
    if plan is None and backend is None:
        raise ConfigError("say for which target: -b BACKEND (see 'onnxq list backends'), or --plan plan.json")
    if plan is not None and skip:
        raise ConfigError("--skip belongs to placing: give it to 'onnxq place', or leave --plan out")
    graph = Graph.load(model)
    given = None if plan is None else read_plan(plan)
    steps = chosen_preprocess(settings, given, data)
    dataset = open_data(graph, data, random, settings.samples, steps)
    if given is None:
        assert backend is not None
        prepared = prepare(graph, backend, settings, passes=passes or ())
        wanted = make_plan(prepared)
    else:
        prepared = prepare_again(graph, given, backend, settings, passes)
        wanted = with_observers(given, observer, weight_observer)
    with stage_bars(quiet=quiet) as progress:
        qparams, report, kept = run_calibration(prepared, wanted, dataset, progress)
    write_output(target, qparams.to_json())
    say(f"parameters of {len(qparams)} tensors from {report.samples} samples written to {target}", quiet=quiet)
    warnings = [*data_warnings(random), *report.warnings]
    if plan is None or len(kept) != len(wanted):
        beside = target.with_name(PLAN_NAME if plan is None else f"{target.stem}.plan.json")
        write_output(beside, kept.to_json())
        say(f"the plan that belongs to them written to {beside}", quiet=quiet)
    for warning in warnings:
        print_warning(warning)
    if strict and warnings:
        raise typer.Exit(1)
