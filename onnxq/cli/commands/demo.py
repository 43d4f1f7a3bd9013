"""`onnxq demo`: a small trained model quantized and measured, without a download."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from warnings import catch_warnings, simplefilter

import typer

from onnxq.cli import options
from onnxq.cli.console import print_pairs, print_warning
from onnxq.cli.progress import run_bar
from onnxq.json_file import JsonMapping

if TYPE_CHECKING:
    from onnxq.demo import DemoData
    from onnxq.runtime.session import OrtSession

BATCH = 32
ROUNDS = 60
"""Timed runs of each model; they alternate, so that a busy machine slows both alike."""


def demo(
    backend: Annotated[str, typer.Option("--backend", "-b", help="Target.")] = "onnxruntime",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the files.")] = Path("onnxq-demo"),
    quiet: options.QuietOption = False,
) -> None:
    """Quantize a digit classifier that comes with onnxq; show accuracy, size and speed before and after."""
    from onnxq.cli.artifacts import check_writable
    from onnxq.demo import load_data, model_path
    from onnxq.errors import OnnxqWarning
    from onnxq.quantize import quantize
    from onnxq.types.note import folded

    check_writable(out)
    data = load_data()
    with run_bar("demo", quiet=quiet) as progress, catch_warnings():
        simplefilter("ignore", OnnxqWarning)  # they are printed below, as those of every command
        result = quantize(model_path(), backend=backend, data=data.calibration, out=out, progress=progress)
    if not quiet:
        _print(model_path(), result.model, result.report, data)
    for warning in folded(result.report["warnings"]):
        print_warning(str(warning))


def _print(model: Path, written: Path, report: JsonMapping, data: DemoData) -> None:
    from onnxq.glance import decibels
    from onnxq.pipeline.summary import nodes_line, size_line
    from onnxq.runtime.session import make_session

    sessions = {"float": make_session(model, threads=1), "quantized": make_session(written, threads=1)}
    right = {name: _accuracy(session, data) for name, session in sessions.items()}
    milliseconds = _milliseconds(sessions, data)
    pairs = [
        (
            "accuracy",
            f"{right['float']:.2%} float, {right['quantized']:.2%} quantized, on {len(data.test_labels)} test images",
        ),
        *(("SQNR", f"{decibels(value)} on output '{name}'") for name, value in report["sqnr_db"].items()),
        ("nodes", nodes_line(report["coverage"])),
        ("size", size_line(model, written)),
        (
            "speed",
            f"{milliseconds['float']:.3f} ms float, {milliseconds['quantized']:.3f} ms quantized for {BATCH} images "
            f"({milliseconds['float'] / milliseconds['quantized']:.2f}x; onnxruntime, one thread of this machine)",
        ),
        *(("files", path) for path in report["files"]),
    ]
    print_pairs(f"handwritten digits, quantized for {report['backend']}", pairs)


def _accuracy(session: OrtSession, data: DemoData) -> float:
    from onnxq.runtime.session import run_session

    feed = {session.get_inputs()[0].name: data.test_images}
    (logits,) = run_session(session, None, feed, "the test images")
    return float((logits.argmax(axis=1) == data.test_labels).mean())


def _milliseconds(sessions: Mapping[str, OrtSession], data: DemoData) -> dict[str, float]:
    """Median time of a batch for each session."""
    images = data.test_images[:BATCH]
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(ROUNDS):
        for name, session in sessions.items():
            start = time.perf_counter()
            session.run(None, {session.get_inputs()[0].name: images})
            seconds[name].append(time.perf_counter() - start)
    return {name: 1000 * statistics.median(times) for name, times in seconds.items()}
