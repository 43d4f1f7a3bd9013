"""What a study has found, in words and tables: for the terminal, for `repr` and for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.mixed_precision.study import noise
from onnxq.ptq.search.evaluator import AGAINST_FLOAT

if TYPE_CHECKING:
    from onnxq.mixed_precision.evaluate import Evaluation
    from onnxq.mixed_precision.sensitivity import Effect, Sensitivity


def metric_text(metric: str, value: float) -> str:
    """A metric for people."""
    if metric == "sqnr_db":
        return f"{value:.2f} dB"
    return f"{value:.2%}" if metric in ("accuracy", "agreement", "retrieval") else f"{value:.5g}"


def loss_text(metric: str, loss: float) -> str:
    """A difference of a metric; above 0 is worse."""
    if metric == "sqnr_db":
        return f"{loss:+.2f} dB"
    return f"{100 * loss:+.2f} points" if metric in ("accuracy", "agreement", "retrieval") else f"{loss:+.4g}"


def evaluation_table(found: Evaluation, float_model: str) -> tuple[list[str], list[list[str]]]:
    """Titles, those of numbers with a >, and a row for each model, the float one called `float_model` first.

    Metrics that hold a model against the float one need no difference beside them.
    """
    columns, first = ["model"], [float_model]
    for name, value in found.of_float.items():
        alone = name in AGAINST_FLOAT
        columns += [f">{name}"] if alone else [f">{name}", ">against float"]
        first += ["float"] if alone else [metric_text(name, value), ""]
    rows = [first]
    for model, values in found.of_models.items():
        row = [model]
        for name, value in values.items():
            row.append(metric_text(name, value))
            if name not in AGAINST_FLOAT:
                row.append(loss_text(name, value - found.of_float[name]))
        rows.append(row)
    return columns, rows


def sensitivity_columns(result: Sensitivity) -> list[str]:
    """Titles of the table of parts; those of numbers begin with >."""
    columns = [result.by, "operator" if result.by == "layer" else "role", "formats", ">SQNR"]
    if result.metric != "sqnr_db":
        return [*columns, f">{result.metric}", ">loss"]
    return [*columns, ">share of the noise" if result.mode == "alone" else ">gain"]


def sensitivity_row(effect: Effect, result: Sensitivity) -> list[str]:
    """A part in the table."""
    formats = ", ".join(dict.fromkeys(spec.dtype for spec in effect.quantizers.values()))
    cells = [effect.name, effect.kind, formats, f"{effect.sqnr_db:.2f} dB"]
    if result.metric != "sqnr_db":
        return [*cells, metric_text(result.metric, effect.score.value), loss_text(result.metric, effect.loss)]
    if result.mode == "all_but":
        return [*cells, f"{-effect.loss:+.2f} dB"]
    everything = sum(noise(other.score) for other in result.effects)
    return [*cells, f"{noise(effect.score) / everything:.1%}" if everything else ""]


def sensitivity_title(result: Sensitivity) -> str:
    what = "quantized alone" if result.mode == "alone" else "everything else quantized"
    return f"{len(result.effects)} {result.by}s, {what}, worst first"
