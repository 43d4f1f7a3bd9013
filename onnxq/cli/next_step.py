"""What to do after a run: one line to copy, by what the run has come to."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from onnxq.json_file import JsonMapping
from onnxq.pipeline.artifacts import PAGE, REMEDY
from onnxq.pipeline.explanation import LOW_SQNR_DB
from onnxq.pipeline.figures import results_of
from onnxq.pipeline.further_commands import diagnose_command, quantize_again_command
from onnxq.progress.time_limit import TOLERANCE

HIGHEST_EFFORT = 3


def next_step(report: JsonMapping, model: Path, data: str | None, out: Path, effort: int) -> str:
    """The line behind `next:`; with a low result what raises it, otherwise where to look and what to compare."""
    source, samples = shlex.quote(str(model)), "" if data is None else f" -d {shlex.quote(data)}"
    remedy = next((path for path in report["files"] if path.endswith(REMEDY)), None)
    if remedy is not None:
        return f"{quantize_again_command(report, str(model), data, remedy)}, with the remedies that pay"
    limit = report.get("time_limit")
    if limit is not None and limit["left_out"] and limit["would_take_seconds"]:
        minutes = limit["would_take_seconds"] * (1 + TOLERANCE) / 60
        return f"the same command with --time-limit {max(1, round(minutes + 0.5))}m, for what was left out"
    if _low(report) and "diagnosis" not in report and data is not None:
        return f"{diagnose_command(report, str(model), data)}, for the cause of the low result"
    if _low(report) and effort < HIGHEST_EFFORT and data is not None:
        return f"the same command with --effort {effort + 1}, which tries more for accuracy"
    page = next((path for path in report["files"] if Path(path).name == PAGE), None)
    written = next((path for path in report["files"] if path.endswith(".onnx")), None)
    look = [] if page is None else [f"open {shlex.quote(page)}"]
    if written is not None and data is not None:
        look.append(f"onnxq compare {source} {shlex.quote(written)}{samples}")
    return ", or ".join(look) or f"onnxq lint {shlex.quote(str(written))} -b {report['backend']}"


def _low(report: JsonMapping) -> bool:
    outputs: Iterable[JsonMapping] = report["checks"]["outputs"]
    values = [result["sqnr_db"] for output in outputs for _, result in results_of(output)]
    return any(not isinstance(value, str) and value is not None and value < LOW_SQNR_DB for value in values)
