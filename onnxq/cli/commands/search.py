"""`onnxq search`: bits for each layer under a budget, or layers restored until a metric holds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.cli import bits_options, options
from onnxq.cli.console import print_blank_line, print_json, print_table, print_warning, say
from onnxq.cli.progress import run_bar
from onnxq.errors import ConfigError

if TYPE_CHECKING:
    from onnxq.mixed_precision import Found, Held


@options.with_settings("images config code ranges place samples random shape engine report", first="target data")
def search(
    model: options.ModelArgument,
    out: options.FolderOption,
    *,
    bits: bits_options.BitsOption = None,
    what: bits_options.ForOption = "weights",
    budget: bits_options.BudgetOption = None,
    hold: bits_options.HoldOption = None,
    max_drop: bits_options.DropOption = None,
    reach: bits_options.ReachOption = None,
    fallback: bits_options.FallbackOption = None,
    metric: bits_options.MetricOption = "sqnr_db",
    evaluate: bits_options.EvalOption = None,
    labels: bits_options.LabelsOption = None,
    eval_samples: bits_options.EvalSamplesOption = None,
    best_by: bits_options.BestByOption = None,
    evaluations: bits_options.EvaluationsOption = None,
    effort: bits_options.EffortOption = None,
    cache: bits_options.CacheOption = None,
    given: options.Given,
    random: options.RandomOption = None,
    shape: options.ShapeOption = None,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Find bits for each layer of MODEL under a budget, or the layers to restore until a metric holds.

    Writes config.json for 'onnxq quantize -c'. The same command again goes on where it was cut off.
    """
    from onnxq.cli.artifacts import check_writable
    from onnxq.cli.data import data_warnings
    from onnxq.cli.settings import load_plugins
    from onnxq.mixed_precision import restore_layers
    from onnxq.mixed_precision import search as run
    from onnxq.mixed_precision.files import write_found
    from onnxq.mixed_precision.search import EVALUATIONS
    from onnxq.output_folder import claim

    _check(bits, budget, fallback, what)
    choices = _numbers(bits)
    check_writable(out)
    result: Found | Held
    with claim(out) as output:
        with run_bar("search", quiet=quiet) as progress:
            load_plugins(plugin)
            evaluated = bits_options.Evaluated(evaluate, labels, eval_samples, metric, best_by, cache or out / "cache")
            session, subject = bits_options.open_subject(
                model, given, evaluated, random=random, shape=shape, passes=passes, progress=progress
            )
            if fallback is not None:
                result = restore_layers(
                    subject,
                    fallback=fallback,  # type: ignore[arg-type]
                    evaluations=evaluations,
                    hold=hold,
                    max_drop=max_drop,
                    reach=reach,
                )
            else:
                result = run(
                    subject,
                    bits=choices,
                    what=what,  # type: ignore[arg-type]
                    budget=budget,
                    evaluations=evaluations or EVALUATIONS,
                    hold=hold,
                    max_drop=max_drop,
                    reach=reach,
                )
        for line in (*data_warnings(random), *bits_options.data_notes(session), *result.notes):
            print_warning(line)
        draw = None if session.settings.report == "no" else partial(_draw, title=f"search for {session.backend.name}")
        files = write_found(output, result, given["backend"] or session.settings.backend, draw)
    if as_json:
        print_json(result.to_json())
    elif not quiet:
        _show_held(result) if fallback is not None else _show_found(result)  # type: ignore[arg-type]
        _tell(result, files, model, given["data"], out)


def _check(bits: str | None, budget: str | None, fallback: str | None, what: str) -> None:
    if (bits is None) == (fallback is None):
        raise ConfigError("give either --bits to choose from, or --fallback to restore layers to 16 or float")
    if fallback is not None and budget is not None:
        raise ConfigError("--budget is for --bits: layers are restored until --hold, --max-drop or --reach is met")
    if fallback not in (None, "16", "float"):
        raise ConfigError(f"--fallback is 16 or float, got '{fallback}'")
    if what not in ("weights", "activations", "both"):
        raise ConfigError(f"--for is weights, activations or both, got '{what}'")


def _numbers(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in (text or "").split(",") if part.strip())
    except ValueError:
        raise ConfigError(f"--bits is a list of whole numbers such as 8,4, got '{text}'") from None


def _draw(stage: Path, title: str) -> str:
    from onnxq.page.content import search_page
    from onnxq.page.document import write_page
    from onnxq.pipeline.artifacts import PAGE

    write_page(stage / PAGE, search_page(stage), title)
    return PAGE


def _show_found(result: Found) -> None:
    from onnxq.mixed_precision.text import metric_text

    name = result.metric
    rows = []
    for point in result.front:
        rows.append(
            (
                "chosen" if point is result.chosen else "",
                metric_text(name, point.score.value),
                f"{point.costs.bytes:,}",
                f"{point.costs.mean_bits:.3f}",
                f"{point.costs.bit_operations:,}",
                point.origin,
            )
        )
    columns = ("", f">{name}", ">bytes of weights", ">mean bits", ">bit operations", "found as")
    title = f"front: {len(result.front)} of {len(result.points)} configurations{_improved(result)}"
    print_table(title, columns, rows)
    layers = [
        (variable.name, variable.kind, ", ".join(variable.layers), str(result.chosen.bits[variable.name]))
        for variable in result.variables
    ]
    print_blank_line()
    print_table(f"chosen: {result.goal}", ("tensor", "role", "read by", ">bits"), layers)


def _show_held(result: Held) -> None:
    from onnxq.mixed_precision.text import metric_text

    name = result.metric
    rows = [
        (
            "held" if step.holds else "",
            str(len(step.restored)),
            metric_text(name, step.score.value),
            ", ".join(step.restored[:4]) + (" ..." if len(step.restored) > 4 else ""),
        )
        for step in result.steps
    ]
    title = f"{result.layers} layers; {result.demand}{_improved(result)}"
    print_table(title, ("", ">restored", f">{name}", "layers"), rows)
    listed = ", ".join(result.restored) or "none"
    say(f"restored to {result.fallback}: {listed}")


def _improved(result: Found | Held) -> str:
    if not result.improvements:
        return ""
    named = result.config.improvements is not None
    return ", evaluated after improvements" if named else f", evaluated after effort {result.config.effort}"


def _tell(result: Found | Held, files: list[Path], model: Path, data: str | None, out: Path) -> None:
    known = result.evaluations["known"]
    say(f"{result.evaluations['run']} runs{f', {known} known from before' if known else ''}")
    say(f"written: {', '.join(str(path) for path in files)}")
    samples = "" if data is None else f" -d {data}"
    say(f"next: onnxq quantize {model} -c {out / 'config.json'}{samples} -o FOLDER")
