"""`onnxq sensitivity`: what each layer or quantizer costs, the most expensive first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import bits_options, options
from onnxq.cli.console import print_json, print_table, print_warning, say
from onnxq.cli.progress import run_bar

if TYPE_CHECKING:
    from onnxq.mixed_precision import Sensitivity


@options.with_settings("images config code ranges place samples random shape engine", first="target data")
def sensitivity(
    model: options.ModelArgument,
    *,
    by: Annotated[str, typer.Option("--by", help="layer or quantizer.")] = "layer",
    only: Annotated[str | None, typer.Option("--only", help="weights or activations alone.")] = None,
    alone: Annotated[
        bool, typer.Option("--alone/--all-but", help="Quantize nothing but each part, or everything but it.")
    ] = True,
    metric: bits_options.MetricOption = "sqnr_db",
    evaluate: bits_options.EvalOption = None,
    labels: bits_options.LabelsOption = None,
    eval_samples: bits_options.EvalSamplesOption = None,
    best_by: bits_options.BestByOption = None,
    cache: bits_options.CacheOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the result into this .json file.")] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write an offline page with every row into this file, or folder.", metavar="FILE"),
    ] = None,
    worst: Annotated[int, typer.Option("--worst", help="Rows to show; 0 shows all.", metavar="N", min=0)] = 20,
    given: options.Given,
    random: options.RandomOption = None,
    shape: options.ShapeOption = None,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Measure what each layer or quantizer costs, the worst first.

    Without --eval the outputs of the float model on calibration samples are what counts.
    """
    from onnxq.cli.artifacts import check_writable, output_file, write_output
    from onnxq.cli.data import data_warnings
    from onnxq.cli.settings import load_plugins
    from onnxq.errors import ConfigError
    from onnxq.mixed_precision import sensitivity as run

    if by not in ("layer", "quantizer"):
        raise ConfigError(f"--by is layer or quantizer, got '{by}'")
    if only not in (None, "weights", "activations"):
        raise ConfigError(f"--only is weights or activations, got '{only}'")
    if cache is not None:
        check_writable(cache)
    target = None if out is None else output_file(out, "sensitivity.json", model)
    page = None if html is None else output_file(html, "sensitivity.html", model)
    with run_bar("sensitivity", quiet=quiet) as progress:
        load_plugins(plugin)
        evaluated = bits_options.Evaluated(evaluate, labels, eval_samples, metric, best_by, cache)
        session, subject = bits_options.open_subject(
            model, given, evaluated, random=random, shape=shape, passes=passes, progress=progress
        )
        result = run(subject, by=by, mode="alone" if alone else "all_but", only=only)  # type: ignore[arg-type]
    for line in (*data_warnings(random), *bits_options.data_notes(session), *result.notes):
        print_warning(line)
    if target is not None:
        write_output(target, result.to_json())
    if page is not None:
        _write_page(page, result, model)
        say(f"written: {page}", quiet=quiet)
    if as_json:
        print_json(result.to_json())
    elif not quiet:
        _show(result, worst)


def _write_page(page: Path, result: Sensitivity, model: Path) -> None:
    from onnxq.mixed_precision.text import metric_text, sensitivity_columns, sensitivity_row, sensitivity_title
    from onnxq.page.tables import write_tables

    facts = [
        ("metric", result.metric),
        ("float model", metric_text(result.metric, result.of_float.value)),
        ("everything quantized", metric_text(result.metric, result.quantized.value)),
    ]
    rows = [sensitivity_row(effect, result) for effect in result.effects]
    table = (sensitivity_title(result), sensitivity_columns(result), rows)
    write_tables(page, f"Sensitivity of {model.name}", facts, [table])


def _show(result: Sensitivity, worst: int) -> None:
    from onnxq.mixed_precision.study import overall_db
    from onnxq.mixed_precision.text import metric_text, sensitivity_columns, sensitivity_row, sensitivity_title

    name = result.metric
    shown = result.effects[:worst] if worst else result.effects
    rows = [sensitivity_row(effect, result) for effect in shown]
    print_table(sensitivity_title(result), sensitivity_columns(result), rows)
    if len(shown) < len(result.effects):
        say(f"{len(result.effects) - len(shown)} better ones not shown; --worst 0 shows all")
    whole = f"{overall_db(result.quantized):.2f} dB"
    if name != "sqnr_db":
        whole += f", {name} {metric_text(name, result.quantized.value)}"
        whole += f"; float model {metric_text(name, result.of_float.value)}"
    known = result.evaluations["known"]
    say(f"everything quantized: {whole} ({result.evaluations['run']} runs{f', {known} known' if known else ''})")
