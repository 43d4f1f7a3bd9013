"""How good each result of a run is: a light for every output and part, for the page and for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from onnxq.json_file import JsonMapping, JsonObject
from onnxq.pipeline.explanation import LOW_SQNR_DB

BAD_SQNR_DB = 10.0
"""Below this the noise is a tenth of the signal's power, and hardly any network decides as before."""

GOOD_AGREEMENT, BAD_AGREEMENT = 0.98, 0.9
"""Decisions, or whole numbers, that are those of the float model."""


SHOWN = ("name", "sqnr_db", "cosine", "max_abs_error", "agreement", "decisions", "per_sample", "kernel_db", "reshaped")
"""Figures of a result that the page has."""


class Light(StrEnum):
    GOOD = "good"
    LOOK = "look"
    BAD = "bad"
    NONE = "none"
    """Nothing was measured, or the figure does not judge the model."""


def judged_results(report: JsonMapping) -> list[JsonObject]:
    """A row for each output, and for each part behind it: its figures and its light."""
    trained = "file_against_net" in report
    return [row for output in report["checks"]["outputs"] for row in _rows(output, report, trained=trained)]


def _rows(output: JsonMapping, report: JsonMapping, *, trained: bool) -> Iterator[JsonObject]:
    yield {**_row(output, report, trained=trained), "part": False}
    # The first versions wrote the SQNR of parts alone.
    first = [{"name": name, "sqnr_db": value} for name, value in output.get("parts_db", {}).items()]
    for part in output.get("parts") or first:
        yield {**_row(part, report, trained=trained), "part": True}


def _row(result: JsonMapping, report: JsonMapping, *, trained: bool) -> JsonObject:
    chip = report.get("simulated_sqnr_db", {}).get(result["name"])
    row = {key: result[key] for key in SHOWN if key in result}
    if result.get("silent"):
        row["silent"] = True
    if chip is not None:
        row["chip_db"] = chip
    return {**row, "light": light_of(row, trained=trained)}


def light_of(row: JsonMapping, *, trained: bool = False) -> Light:
    """The light of one result; the distance of a trained network to its own weights in float judges nothing."""
    figures = [float(row[key]) for key in ("sqnr_db", "chip_db") if key in row]
    agreed = [row["agreement"]] if "agreement" in row else []
    agreed += [_without_one(**row["decisions"])] if "decisions" in row else []
    if row.get("silent"):
        return Light.BAD
    if trained or not (figures or agreed):
        return Light.NONE
    if min(figures, default=LOW_SQNR_DB) < BAD_SQNR_DB or min(agreed, default=1.0) < BAD_AGREEMENT:
        return Light.BAD
    if min(figures, default=LOW_SQNR_DB) < LOW_SQNR_DB or min(agreed, default=1.0) < GOOD_AGREEMENT:
        return Light.LOOK
    return Light.GOOD


def _without_one(agreement: float, compared: int, **_: object) -> float:
    """The agreement with one disagreement less: among a few decisions, a single one says nothing."""
    return min(1.0, agreement + 1 / compared) if compared else 1.0
