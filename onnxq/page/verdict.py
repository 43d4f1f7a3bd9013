"""The verdict of a run: a light for every output and part, and what to do about those that are not good."""

from __future__ import annotations

from pathlib import Path

from onnxq.json_file import JsonMapping, JsonObject
from onnxq.pipeline.artifacts import REMEDY
from onnxq.pipeline.explanation import LOW_SQNR_DB
from onnxq.pipeline.further_commands import diagnose_command, given_to, quantize_again_command
from onnxq.pipeline.judgement import BAD_AGREEMENT, BAD_SQNR_DB, GOOD_AGREEMENT, Light, judged_results


def verdict_json(report: JsonMapping) -> JsonObject:
    """A row for each result, the worst light of all, and the lines to copy."""
    trained = "file_against_net" in report
    rows = judged_results(report)
    order = [Light.BAD, Light.LOOK, Light.GOOD]
    lights = [row["light"] for row in rows]
    return {
        "light": next((light for light in order if light in lights), Light.NONE),
        "results": rows,
        "limits": {
            "low_db": LOW_SQNR_DB,
            "bad_db": BAD_SQNR_DB,
            "good_agreement": GOOD_AGREEMENT,
            "bad_agreement": BAD_AGREEMENT,
        },
        "trained": trained,
        "again": quantize_again_command(report, *given_to(report)),
        "lines": _lines(report, low=any(light in (Light.BAD, Light.LOOK) for light in lights)),
    }


def _lines(report: JsonMapping, *, low: bool) -> list[JsonObject]:
    """Commands that go on from here: with the remedies that pay, or to find the cause where nobody has looked."""
    if not low:
        return []
    remedy = next((path for path in report.get("files", ()) if Path(path).name.endswith(REMEDY)), None)
    if remedy is not None:
        line = quantize_again_command(report, *given_to(report), str(remedy))
        return [{"what": "quantize again with the remedies that pay", "line": line}]
    if "diagnosis" in report:
        return []
    line = diagnose_command(report, *given_to(report))
    return [{"what": "nobody has looked for the cause yet: find it, and what mends it", "line": line}]
