"""Speed of quantized files in onnxruntime against the float model: onnxq's and those of other tools, in turns."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime as ort

import onnxq
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import make_session
from onnxq.runtime.timing import Turn, in_rounds
from onnxq.verify.kernels import integer_kernels
from tools.bench import end_to_end
from tools.bench.child import ChildFailed, Tool
from tools.bench.end_to_end import NoModel, Subject
from tools.bench.peers.formats import W8A8
from tools.bench.ptq_accuracy import PEERS, outputs, worst_sqnr
from tools.bench.ptq_overview import DEFAULT
from tools.bench.results import Row, Tables
from tools.bench.samples import save_feeds

FLOAT = "float"
SHORTEST_TURN = 0.02
"""Seconds: a file that takes less is run several times in its turn."""

OWN: Mapping[str, Mapping[str, object]] = {
    "onnxq": {"effort": 0, "report": "no"},
    "onnxq, latency": {"effort": 0, "report": "no", "optimize_for": "latency"},
}


@dataclass(frozen=True)
class Settings:
    """What is measured; names as those of `end_to_end.Settings`."""

    folders: Mapping[str, Path] = field(default_factory=dict)
    made: Sequence[str] = ()
    peers: Mapping[str, str] = field(default_factory=dict)
    samples: int = 16
    unseen: int = 8
    rounds: int = 15
    timeout: float = 1800.0


def measure(settings: Settings, progress: Callable[[Tables], object]) -> Tables:
    """A table for each model; `progress` gets all of them after each."""
    tables: Tables = {}
    common = end_to_end.Settings(samples=settings.samples, unseen=settings.unseen)
    for name in (*settings.folders, *settings.made):
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            try:
                if name in settings.folders:
                    subject = end_to_end.read_subject(name, settings.folders[name], common)
                else:
                    subject = end_to_end.made_subject(name, folder, common)
                tables[name] = _rows(subject, settings, folder)
            except NoModel as error:
                tables[name] = [{"file": "", "note": f"not run: {error}"}]
        progress(tables)
    return tables


def _rows(subject: Subject, settings: Settings, folder: Path) -> list[Row]:
    files: dict[str, Path] = {FLOAT: subject.model}
    failures: dict[str, str] = {}
    for name, config in OWN.items():
        result = onnxq.quantize(
            subject.model, backend="onnxruntime", data=subject.calibration, config=dict(config), out=folder / name
        )
        files[name] = result.model
    feeds = folder / "feeds.npz"
    save_feeds(feeds, subject.calibration)
    for peer, python in settings.peers.items():
        name, module = PEERS[peer]
        path = folder / f"{peer}.onnx"
        try:
            Tool(module, python, settings.timeout).write(W8A8, DEFAULT, subject.model, feeds, path)
            files[name] = path
        except ChildFailed as failure:
            failures[name] = str(failure)
    times = _in_turns(files, subject, settings.rounds)
    expected = outputs(subject.model, subject.unseen)
    rows: list[Row] = []
    for name, path in files.items():
        quotients = times[FLOAT] / times[name]
        low, high = np.percentile(quotients, (25, 75))
        counted = integer_kernels(path)
        rows.append(
            {
                "file": name,
                "ms": float(f"{1000 * np.median(times[name]):.3g}"),
                "times as fast": round(float(np.median(quotients)), 2),
                "quartiles": f"{low:.2f} .. {high:.2f}",
                "SQNR dB": "" if name == FLOAT else worst_sqnr(expected, outputs(path, subject.unseen)),
                "as run dB": "" if name == FLOAT else worst_sqnr(expected, outputs(path, subject.unseen, "all")),
                "integer layers": sum(n for op, n in counted.integer.items() if _is_layer(op)),
                "float layers": sum(counted.floating.values()),
                "Q/DQ left": sum(counted.quantizers.values()),
            }
        )
        print(subject.name, *(f"{key}: {value}" for key, value in rows[-1].items()), sep="; ", file=sys.stderr)
    return rows + [{"file": name, "note": f"no file: {text}"} for name, text in failures.items()]


def _is_layer(op: str) -> bool:
    return any(kind in op for kind in ("Conv", "MatMul", "Gemm"))


def _in_turns(files: Mapping[str, Path], subject: Subject, rounds: int) -> dict[str, np.ndarray]:
    """File -> seconds of a run in each round; round n is on the n-th unseen sample, for all of them."""
    current = [subject.unseen[0]]

    def before(number: int) -> None:
        current[0] = subject.unseen[number % len(subject.unseen)]

    turns = [Turn(partial(_run, make_session(path, threads=1, what=name), current)) for name, path in files.items()]
    times = in_rounds(turns, seconds=math.inf, rounds=rounds, shortest=SHORTEST_TURN, before=before)
    return dict(zip(files, times.T, strict=True))


def _run(session: ort.InferenceSession, current: Sequence[Feed]) -> None:
    session.run(None, current[0])
