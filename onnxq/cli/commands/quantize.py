"""`onnxq quantize`: the whole flow, a summary for people or the report for programs."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxq.cli import bits_options, options
from onnxq.cli.console import print_error, say
from onnxq.cli.progress import run_bar


@options.with_settings(
    "target data images config foreign code ranges place samples random shape stats engine improve latency time verify"
    " diagnose report"
)
def quantize(
    model: options.ModelArgument,
    out: options.FolderOption,
    given: options.Given,
    random: options.RandomOption = None,
    shape: options.ShapeOption = None,
    stats: options.StatisticsOption = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help="Measure it on the float model and on the written one: accuracy, agreement, kl, sqnr_db, or "
            "module:function(outputs, labels). Repeatable.",
            show_default=False,
        ),
    ] = None,
    evaluate: bits_options.EvalOption = None,
    labels: bits_options.LabelsOption = None,
    eval_samples: bits_options.EvalSamplesOption = None,
    hold: bits_options.HoldOption = None,
    max_drop: bits_options.DropOption = None,
    reach: bits_options.ReachOption = None,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    strict: options.StrictOption = False,
    mlflow: options.MlflowOption = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Quantize MODEL for a target and write the checked files into a folder.

    Under torchrun the processes calibrate on a part of the samples each, and the first one writes the files.
    """
    from onnxq.cli.artifacts import check_statistics_file, check_writable
    from onnxq.cli.data import data_warnings, open_data
    from onnxq.cli.next_step import next_step
    from onnxq.cli.settings import load_plugins, read_settings
    from onnxq.cli.shapes import read_shapes
    from onnxq.cli.summary import fail_on_warnings, show_report
    from onnxq.config.assignments import Assignment
    from onnxq.distributed import in_step, torchrun_ranks
    from onnxq.graph import Graph
    from onnxq.integrations.mlflow import log_run, open_store
    from onnxq.mixed_precision.task import Task
    from onnxq.quantize import contribute_to_session, quantize_session
    from onnxq.session.session import open_session

    if mlflow:
        open_store()
    with (
        torchrun_ranks(print_error) as ranks,
        run_bar("quantize", quiet=quiet or not (ranks is None or ranks.first)) as progress,
    ):
        progress("load", 0, None)
        with in_step(ranks):
            load_plugins(plugin)
            graph = Graph.load(model)
            without_data = bool(random) and given["data"] is None
            settings = read_settings(
                given,
                graph,
                shapes=read_shapes(shape, graph),
                # Ranges of random numbers are nobody's fault.
                defaults=[
                    Assignment(("effort",), 0, "--random"),
                    Assignment(("diagnose",), False, "--random"),
                ]
                if without_data
                else (),
            )
            task = Task.of(
                metric, evaluate, labels=labels, samples=eval_samples, hold=hold, max_drop=max_drop, reach=reach
            )
            check_writable(out)
            check_statistics_file(stats, model, settings.data)
            session = open_session(
                graph,
                backend=None if settings.translation is not None else given["backend"],
                config=settings,
                passes=passes or (),
                strict=strict,
                progress=progress,
                ranks=ranks,
            )
            if random is not None:
                samples = None if without_data else settings.data
                session.use_dataset(open_data(session.original, samples, random, settings.samples))
            session.open_data()
        if ranks is not None and not ranks.first:
            contribute_to_session(session, statistics=stats)
            return
        result = quantize_session(session, out, warnings=data_warnings(random), statistics=stats, task=task)
    show_report(result.report, model, result.model, as_json=as_json, quiet=quiet)
    data = None if session.settings.data is None else str(session.settings.data)
    say(f"next: {next_step(result.report, model, data, out, settings.effort)}", quiet=quiet or as_json)
    if mlflow:
        say(f"MLflow: run {log_run(out)}", quiet=quiet or as_json)
    fail_on_warnings(result.report, out, strict=session.strict)
