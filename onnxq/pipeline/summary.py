"""A run's report as a page of text: coverage, accuracy, size, time, files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from onnxq.glance import decibels
from onnxq.graph.protos import file_bytes, stored_bytes
from onnxq.json_file import JsonMapping
from onnxq.pipeline.figures import decision_line, results_of, sample_line
from onnxq.progress.durations import duration_text
from onnxq.ptq.search.reasons import StepReason
from onnxq.text_tables import drawn_text, human_bytes, write_pairs, write_table
from onnxq.types.dialect import DIALECTS
from onnxq.types.note import folded

LOOKED_AT = 2**28
"""Bytes of a file up to which its size is explained."""

SMALLER_ON_THE_CHIP = 0.7
"""The constants of a chip in parts of a file, below which the file is said to hold floats that become integers."""

STEPS_SHOWN = 2
"""Lines for tools of a vendor; the page has all of them."""

REASONS_SHOWN = 8
"""Groups of reasons in the summary; report.json has each node with its own."""


def summary_text(report: JsonMapping, model: Path | None, written: Path) -> str:
    """The summary as text."""
    return drawn_text(lambda out: write_summary(out, report, model, written))


def write_summary(out: Console, report: JsonMapping, model: Path | None, written: Path) -> None:
    """What a person wants to know after a run; `model` is None for one that came from memory, or is gone."""
    coverage = report["coverage"]
    pairs = [
        ("model", str(written) if model is None else f"{model} -> {written}"),
        *(("layers", line) for line in work_lines(report.get("work"))),
        ("nodes", nodes_line(coverage)),
        ("tensors", ", ".join(f"{count} {role}" for role, count in coverage["tensors"].items())),
        ("size", size_line(model, written, report.get("constant_bytes"))),
    ]
    trained = "file_against_net" in report
    to_what = ", to the trained weights in float" if trained else ""
    for output in report["checks"]["outputs"]:
        for what, result in results_of(output):
            said = f"{decibels(result['sqnr_db'])} on {what}"
            said += to_what if result is output else ""
            pairs.append(("SQNR" if result is output else "", said + (": SILENT" if "silent" in result else "")))
            pairs += [("", line) for line in (sample_line(result), decision_line(result)) if line is not None]
    pairs += [
        ("file", f"{found['within']:.2%} of output '{found['output']}' within a step of the trained network")
        for found in report.get("file_against_net", ())
    ]
    pairs += [
        ("on the chip", f"{decibels(value)} on '{name}', as simulated")
        for name, value in report["simulated_sqnr_db"].items()
    ]
    pairs += [
        ("agreement", f"{output['agreement']:.2%} of output '{output['name']}'")
        for output in report["checks"]["outputs"]
        if "agreement" in output
    ]
    pairs += [
        ("selects", f"{found['agreement']:.2%} of what {found['op']} '{found['node']}' selects in the float model")
        for found in report["checks"].get("selections", ())
    ]
    pairs += [("metric", line) for line in task_lines(report.get("task"))]
    pairs += [("improved", line) for line in improvement_lines(report.get("improvements"))]
    pairs += [("time limit", line) for line in limit_lines(report.get("time_limit"))]
    if report["calibration_samples"]:
        pairs.append(("samples", str(report["calibration_samples"])))
    pairs += [("speed", line) for line in speed_lines(report)]
    pairs += [("kernels", line) for line in kernel_lines(report["kernels"])]
    pairs.append(("seconds", ", ".join(f"{stage} {value:.2f}" for stage, value in report["seconds"].items())))
    pairs.append(("checks", checks_line(report)))
    pairs += [("files", path) for path in report["files"]]
    pairs += [("then", line) for line in vendor_lines(report.get("vendor_steps", ()))]
    pairs += [("notes", str(note)) for note in folded(report["notes"])]
    write_pairs(out, f"quantized for {report['backend']}", pairs)
    translated = report.get("translated")
    if translated is not None:
        write_rows(
            out, translated["from"], [(entry["key"], entry["value"], entry["became"]) for entry in translated["keys"]]
        )
    reasons = grouped(coverage["float_nodes"].values())
    if reasons:
        shown = [(str(count), reason) for reason, count in reasons[:REASONS_SHOWN]]
        rest = sum(count for _, count in reasons[REASONS_SHOWN:])
        if rest:
            shown.append((str(rest), "other reasons, each in report.json"))
        write_table(out, "why nodes stay float", (">nodes", "reason"), shown)


def task_lines(task: JsonMapping | None) -> list[str]:
    """The user's own metrics, of the float model and of the written one."""
    if task is None:
        return []
    lines = [f"{one['text']} on {task['samples']} samples" for one in task["metrics"]]
    return lines + ([f"held: {task['demand']}"] if task["demand"] else [])


def vendor_lines(steps: Sequence[JsonMapping]) -> list[str]:
    """What the vendor's tool does with the files: the command, or what it is where that takes several lines."""
    lines = [one["what"] if "\n" in one["line"] else one["line"] for one in steps[:STEPS_SHOWN]]
    rest = len(steps) - len(lines)
    return [*lines, *([f"and {rest} more {'way' if rest == 1 else 'ways'}, in report.html (Files)"] if rest else [])]


def kernel_lines(kernels: JsonMapping | None) -> list[str]:
    """What onnxruntime runs: integer and float kernels, and the operators for which integers become floats."""
    if kernels is None:
        return []
    counted = {kind: kernels[kind] for kind in ("integer", "float", "quantizers")}
    counted["float between integers"] = Counter(entry["op"] for entry in kernels["converted"].values())
    return [
        f"{kind}: " + ", ".join(f"{count} {name}" for name, count in counts.items())
        for kind, counts in counted.items()
        if counts
    ]


def speed_lines(report: JsonMapping) -> list[str]:
    """How fast the file is where onnxruntime is the target, and what was left float for that."""
    lines = []
    if (speed := report.get("speed")) is not None:
        low, high = speed["quartiles"]
        lines.append(
            f"{speed['times_as_fast']:.2f} times as fast as float here, {low:.2f} to {high:.2f} in half of "
            f"{speed['rounds']} rounds ({speed['float_ms']:.3g} -> {speed['file_ms']:.3g} ms, one thread)"
        )
    if (tuning := report.get("tuning")) is not None:
        kept = [group for group in tuning["groups"] if group["float"]]
        named = ", ".join(f"{group['group']} ({group['times_as_fast']:.2f} times as fast)" for group in kept)
        late = f"; {tuning['not_timed']} were left when the time was over" if tuning["not_timed"] else ""
        lines.append(f"{len(tuning['groups'])} groups of nodes timed, float: {named or 'none'}{late}")
    return lines


def improvement_lines(improvements: JsonMapping | None) -> list[str]:
    """What was tried for accuracy: the gain, then what was applied and what was not."""
    if improvements is None:
        return []
    used = [step["name"] for step in improvements["steps"] if step["applied"]]
    # The same step may have been tried in several places.
    untried = (StepReason.TIME_LIMIT.value, StepReason.SKIPPED.value)
    tried = [step for step in improvements["steps"] if step.get("reason") not in untried]
    left = list(dict.fromkeys(step["name"] for step in tried if step["name"] not in used))
    if improvements["before"] is None:
        lines = [f"applied without data to evaluate on: {', '.join(used)}"] if used else []
        return lines + ([f"nothing to change for: {', '.join(left)}"] if left else [])
    before, after = (decibels(improvements[key]) for key in ("before", "after"))
    if not improvements["steps"]:
        return [f"{before} on {improvements['evaluated_on']} held samples is near enough, so nothing was tried"]
    if not tried:
        return [f"{before} on {improvements['evaluated_on']} samples; nothing was tried, every step was left out"]
    lines = [f"{before} -> {after} on {improvements['evaluated_on']} samples that nothing was fitted to"]
    if len(levels := improvements["levels"]) > 1:
        reached = (f"effort {one['effort']} {decibels(one['after'])} in {one['seconds']:.0f} s" for one in levels)
        lines += [f"reached: {', '.join(reached)}"]
    lines += [f"applied: {', '.join(used)}"] if used else ["nothing that was tried helped"]
    lines += [f"tried without effect: {', '.join(left)}"] if used and left else []
    return lines


def limit_lines(limit: JsonMapping | None) -> list[str]:
    """How a limit of time was kept, what was left out for it, and how to have it all the same."""
    if limit is None:
        return []
    lines = [f"{duration_text(limit['taken'])} of {duration_text(limit['seconds'])}"]
    if not limit["left_out"]:
        return [f"{lines[0]}, nothing was left out"]
    longest: dict[str, float] = {}
    for one in limit["left_out"]:
        longest[one["what"]] = max(longest.get(one["what"], 0.0), one["expected_seconds"] or 0.0)
    lines.append("left out: " + ", ".join(f"{what}{_about(seconds)}" for what, seconds in longest.items()))
    whole = limit["would_take_seconds"]
    if whole is not None:
        lines.append(f"with all of it the run would take about {duration_text(whole)}")
    return lines


def _about(seconds: float) -> str:
    return f" (about {duration_text(seconds)})" if seconds else ""


def write_rows(out: Console, tool: str, rows: Sequence[tuple[str, str, str]]) -> None:
    called = DIALECTS.get(tool).tool if tool in DIALECTS else tool
    write_table(out, f"what the keys of {called} became", ("key", "value", "became"), rows)


def nodes_line(coverage: JsonMapping) -> str:
    """Coverage in a line: how many nodes, and what became of them."""
    share = 100 * (coverage["quantized"] + coverage["fused"]) / max(coverage["nodes"], 1)
    return (
        f"{coverage['nodes']}: {coverage['quantized']} quantized, {coverage['fused']} fused into them, "
        f"{coverage['float']} float ({share:.1f} % quantized or fused)"
    )


LAYERS = {
    "Conv": ("convolution", "convolutions"),
    "ConvTranspose": ("transposed convolution", "transposed convolutions"),
    "Gemm": ("fully connected layer", "fully connected layers"),
    "MatMul": ("matrix product", "matrix products"),
}
"""What people call the operators that multiply."""


def work_lines(work: JsonMapping | None) -> list[str]:
    """How many of the layers are quantized, and how much of the work that is; nothing for a model without any."""
    if work is None or not work["layers"]:
        return []
    parts = []
    for op, count in work["layers"].items():
        one, several = LAYERS.get(op, (op, op))
        parts.append(f"{count['quantized']} of {count['all']} {one if count['all'] == 1 else several}")
    line = ", ".join(parts)
    if work["macs"]:
        share = 100 * work["quantized_macs"] / work["macs"]
        line += f": {share:.1f} % of the work ({macs_text(work['macs'])} in one sample)"
    return [line]


def macs_text(count: int) -> str:
    """Multiplications with their additions: 3.1 GMACs."""
    for unit, size in (("GMACs", 1e9), ("MMACs", 1e6), ("kMACs", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} MACs"


def checks_line(report: JsonMapping) -> str:
    """What the written model has passed; a model that fails is never written."""
    compared = report["checks"]["samples"]
    measured = f"outputs compared on {compared} samples" if compared else "accuracy not measured (no data)"
    return f"valid ONNX, loads in onnxruntime, inputs and outputs unchanged, within the target's limits; {measured}"


def size_line(model: Path | None, written: Path, constants: JsonMapping | None = None) -> str:
    """Size on disk before and after, external data included, and what the chip holds where the file has floats."""
    after = file_bytes(written)
    stored = stored_bytes(written) if written.stat().st_size <= LOOKED_AT else Counter()
    explained = f"{_explained_size(stored)}{_on_the_chip(stored.total() or after, constants)}"
    if model is None:
        return f"{human_bytes(after)}{explained}"
    before = file_bytes(model)
    return f"{human_bytes(before)} -> {human_bytes(after)} ({after / before:.2f}x){explained}"


def _on_the_chip(stored: int, constants: JsonMapping | None) -> str:
    """For files whose weights stay float, because the tool of the target quantizes them."""
    if not constants or constants["chip"] > SMALLER_ON_THE_CHIP * min(stored, constants["float"]):
        return ""
    return f"; the tool of the target quantizes weights: about {human_bytes(constants['chip'])} on the chip"


def _explained_size(stored: Counter[str]) -> str:
    """What the bytes of a file are, the most first; nothing for one that would take long to look at."""
    sizes = {kind: size for kind, size in stored.most_common() if size}
    return ": " + ", ".join(f"{human_bytes(size)} {kind}" for kind, size in sizes.items()) if sizes else ""


def grouped(lines: Iterable[str]) -> list[tuple[str, int]]:
    """Lines with their counts, the most frequent first; lines that differ only in quoted names are one."""
    members: dict[str, Counter[str]] = {}
    for line in lines:
        members.setdefault(re.sub(r"'[^']*'", "'...'", line), Counter())[line] += 1
    groups = [(next(iter(same)) if len(same) == 1 else key, same.total()) for key, same in members.items()]
    return sorted(groups, key=lambda group: -group[1])
