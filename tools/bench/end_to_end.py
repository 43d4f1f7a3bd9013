"""From a float file to a quantized file: processor time and accuracy of every effort of onnxq, and of other tools.

Every file is written by its tool in a process of its own, from the same samples; imports are not counted. Tools take
turns, with plain inference over the same samples before and after each of them, in one thread: that is the floor.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from tools.bench.child import ONNXQ, Outcome, Tool
from tools.bench.clock import Measure, alternate, failure_text
from tools.bench.models import MODELS
from tools.bench.peers.formats import W8A8
from tools.bench.peers.protocol import cpu_seconds
from tools.bench.ptq_accuracy import PEERS, outputs, worst_sqnr
from tools.bench.ptq_overview import DEFAULT, EQUAL, OWN
from tools.bench.results import Row, Tables
from tools.bench.samples import Feed, samples_for, save_feeds

FLOOR = "plain inference"
LEAST_FLOOR = 0.2
"""Seconds that a floor has at least: shorter ones are repeated until they have them, as clocks have steps."""


class NoModel(ValueError):
    """A folder without a model or without samples."""


@dataclass(frozen=True)
class Subject:
    """A float file, samples to calibrate with, and others to evaluate with."""

    name: str
    model: Path
    calibration: Sequence[Feed]
    unseen: Sequence[Feed]


@dataclass(frozen=True)
class Settings:
    """What is measured.

    folders   name -> folder with model.onnx, calibration/*.npz and held/*.npz (a file of arrays for each sample)
    made      networks of `tools.bench.models`, with random weights
    peers     name in PEERS -> interpreter that has the tool
    settings  those of the peers to measure
    """

    folders: Mapping[str, Path] = field(default_factory=dict)
    made: Sequence[str] = ()
    efforts: Sequence[int] = (0, 1, 2)
    peers: Mapping[str, str] = field(default_factory=dict)
    settings: Sequence[str] = (DEFAULT,)
    samples: int = 64
    unseen: int = 24
    repeats: int = 3
    timeout: float = 1800.0


def measure(settings: Settings, progress: Callable[[Tables], object]) -> Tables:
    """A table for each model; `progress` gets all of them after each."""
    tables: Tables = {}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        makers = {name: partial(read_subject, name, path, settings) for name, path in settings.folders.items()}
        makers |= {name: partial(made_subject, name, folder, settings) for name in settings.made}
        for name, make in makers.items():
            try:
                tables[name] = _rows(make(), settings, folder)
            except NoModel as error:
                tables[name] = [{"tool": "", "note": f"not run: {error}"}]
            progress(tables)
    return tables


def read_subject(name: str, folder: Path, settings: Settings) -> Subject:
    model = folder / "model.onnx"
    if not model.is_file():
        raise NoModel(f"there is no {model.name} in the folder of {name}")
    found = {
        part: [dict(np.load(file)) for file in sorted((folder / part).glob("*.npz"))[:most]]
        for part, most in (("calibration", settings.samples), ("held", settings.unseen))
    }
    empty = [part for part, feeds in found.items() if not feeds]
    if empty:
        raise NoModel(f"there are no .npz files in {empty[0]}/ of {name}")
    return Subject(name, model, found["calibration"], found["held"])


def made_subject(name: str, folder: Path, settings: Settings) -> Subject:
    path = folder / f"{name}.onnx"
    onnx.save(MODELS[name](), str(path))
    unseen = samples_for(name, settings.unseen, seed=1)
    return Subject(name, path, list(samples_for(name, settings.samples)), list(unseen))


def _rows(subject: Subject, settings: Settings, folder: Path) -> list[Row]:
    feeds = folder / "feeds.npz"
    save_feeds(feeds, subject.calibration)
    runs = {(OWN, f"effort {effort}"): Tool(ONNXQ, timeout=settings.timeout) for effort in settings.efforts}
    for peer, python in settings.peers.items():
        name, module = PEERS[peer]
        runs |= {(name, setting): Tool(module, python, settings.timeout) for setting in settings.settings}
    written = {run: folder / f"{number}" / "quantized.onnx" for number, run in enumerate(runs)}
    spent: dict[tuple[str, str], list[Outcome]] = {run: [] for run in runs}

    def writes(run: tuple[str, str]) -> Measure:
        def once() -> float:
            with tempfile.TemporaryDirectory(dir=folder) as own:
                made = Path(own) / "quantized.onnx"
                spent[run].append(runs[run].write(W8A8, run[1], subject.model, feeds, made))
                written[run].parent.mkdir(exist_ok=True)
                made.replace(written[run])
            return spent[run][-1].cpu

        return once

    floor, timings = alternate(_floor(subject), {"; ".join(run): writes(run) for run in runs}, settings.repeats)
    expected = outputs(subject.model, subject.unseen)
    counts = f"{len(subject.calibration)} samples to calibrate with, {len(subject.unseen)} to judge with"
    note = "; ".join(filter(None, (counts, floor.note)))
    rows: list[Row] = [
        {
            "tool": FLOOR,
            "setting": "",
            "CPU s": float(f"{statistics.median(floor.seconds):.3g}"),
            "x floor": 1.0,
            "note": note,
        }
    ]
    for run in runs:
        timing = timings["; ".join(run)]
        row: Row = {"tool": run[0], "setting": run[1]}
        if timing.seconds:
            row |= {
                "CPU s": round(statistics.median(timing.seconds), 2),
                "x floor": round(statistics.median(timing.ratios), 2),
                "min .. max": f"{min(timing.ratios):.2f} .. {max(timing.ratios):.2f}",
                "wall s": round(statistics.median(one.seconds for one in spent[run]), 2),
                "peak MB": round(statistics.median(one.peak_mb for one in spent[run])),
                **_evaluated(subject, expected, written[run]),
            }
        rows.append({**row, "note": "; ".join(filter(None, (timing.note, str(row.get("note", "")))))})
        print(subject.name, *(f"{key}: {value}" for key, value in rows[-1].items()), sep="; ", file=sys.stderr)
    return rows


def _evaluated(subject: Subject, expected: Sequence[Sequence[np.ndarray]], file: Path) -> Row:
    """What the file computes on samples that nobody has calibrated with."""
    try:
        value = worst_sqnr(expected, outputs(file, subject.unseen))
    except Exception as error:  # what is wrong with a file is the result of its row
        return {"note": failure_text(error)}
    size = round(file.stat().st_size / 1e6, 2)
    return {"SQNR dB": value, "file MB": size, "note": "nothing was quantized" if value == EQUAL else ""}


def _floor(subject: Subject) -> Measure:
    """Processor seconds of inference over the samples: all optimizations, one thread, after one run to warm up."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(subject.model), options, providers=["CPUExecutionProvider"])
    session.run(None, subject.calibration[0])

    def once() -> float:
        rounds, begun = 0, cpu_seconds()
        while not rounds or cpu_seconds() - begun < LEAST_FLOOR:
            for feed in subject.calibration:
                session.run(None, feed)
            rounds += 1
        return (cpu_seconds() - begun) / rounds

    return once
