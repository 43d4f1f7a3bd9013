"""What is measured of onnxq, as jobs that run in this process (times) or in one of their own (peak memory)."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnxruntime as ort

import onnxq
from onnxq.calibrate.activations import activation_ranges
from onnxq.calibrate.gather import activation_leaders, gather
from onnxq.pipeline.artifacts import emit_plan
from onnxq.ptq.method import State
from onnxq.ptq.search.stage import improve_model
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.session.prepare import Prepared, make_plan
from onnxq.session.session import open_session
from onnxq.types import QParamsTable, QuantPlan
from tools.bench.peers.formats import BLOCK, W4, W4_ZERO_POINTS, W4A4, W4A8, W8A8, W8A8_PER_TENSOR
from tools.bench.peers.protocol import Action, Climber, Job, Writer, main
from tools.bench.ptq_overview import AT_INPUTS as SECOND
from tools.bench.samples import Feed

BACKEND = "onnxruntime"
HISTOGRAM_METHODS = ("percentile", "mse", "kl")


def floor(model: Path, samples: Sequence[Feed], folder: Path, threads: int = 0) -> Action:
    """Plain inference: every optimization, all cores or some threads, one sample at a time, after one to warm up."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    session.run(None, samples[0])

    def action() -> None:
        for feed in samples:
            session.run(None, feed)

    return action


def minmax(model: Path, samples: Sequence[Feed], folder: Path) -> Action:
    """Everything that `calibrate` does: sessions, runs, statistics, weights, biases."""
    prepared, plan, dataset = _ready(model, samples, "minmax")
    return lambda: onnxq.calibrate(prepared.graph, plan, dataset)


def histogram(model: Path, samples: Sequence[Feed], folder: Path) -> Action:
    """One collection of histograms, and the parameters of all activations by three methods from it."""
    prepared, plan, dataset = _ready(model, samples, "percentile")
    return lambda: three_methods(prepared, plan, dataset)


def whole(model: Path, samples: Sequence[Feed], folder: Path) -> Action:
    """From a file to a checked file, with calibration alone."""
    # Random weights have outputs that no quantization keeps well: the check runs, its limit is out of the way.
    config = {"observer": "minmax", "effort": 0, "minimum_sqnr_db": -100.0}
    return lambda: onnxq.quantize(model, backend=BACKEND, data=samples, out=folder / "quantized", config=config)


def three_methods(prepared: Prepared, plan: QuantPlan, dataset: Dataset) -> dict[str, QParamsTable]:
    """Method -> parameters of every observed activation, from one pass over the data."""
    leaders = activation_leaders(plan)
    gathered = gather(prepared.graph, leaders, dataset)
    tables = {method: QParamsTable() for method in HISTOGRAM_METHODS}
    for method, table in tables.items():
        by_method = [replace(placement, observer=method) for placement in leaders]
        activation_ranges(prepared.graph, by_method, gathered, table)
    return tables


def _ready(model: Path, samples: Sequence[Feed], observer: str) -> tuple[Prepared, QuantPlan, Dataset]:
    prepared = onnxq.prepare(model, BACKEND, {"observer": observer})
    return prepared, make_plan(prepared), open_dataset(samples, input_infos(prepared.graph))


JOBS: dict[str, Job] = {
    "float inference": floor,
    "calibrate minmax": minmax,
    "calibrate percentile + mse + kl": histogram,
    "quantize, effort 0": whole,
}

EFFORTS = (0, 1, 2, 3)
EFFORTS_AT_INPUTS = (0, 1)
"""Of the second target of W8A8, which shows where quantizers cost most; the others would double the time of a run."""


@dataclass(frozen=True)
class Target:
    """A number format as onnxq is told it: a backend and settings."""

    backend: str
    config: Mapping[str, Any] = field(default_factory=dict)


TARGETS = {
    W8A8: Target(BACKEND),
    W8A8_PER_TENSOR: Target(BACKEND, {"weight": {"per_channel": False}}),
    W4A8: Target("academic:w_bits=4,a_bits=8,a_symmetric=no"),
    W4A4: Target("academic:w_bits=4,a_bits=4,a_symmetric=no"),
    W4: Target(f"weight_only:bits=4,block={BLOCK},symmetric=yes,ops=linear"),
    W4_ZERO_POINTS: Target(f"weight_only:bits=4,block={BLOCK},symmetric=no,ops=linear"),
}


AT_INPUTS = {W8A8: Target(SECOND), W8A8_PER_TENSOR: Target(SECOND, {"weight": {"per_channel": False}})}
"""Formats of a target that quantizes what layers read and not what they make, as NNCF does."""


SETTINGS = {
    form: [
        *(f"effort {effort}" for effort in EFFORTS),
        *(f"{SECOND}, effort {effort}" for effort in EFFORTS_AT_INPUTS if form in AT_INPUTS),
    ]
    for form in TARGETS
}
"""Format -> what is measured of it: efforts, for one target or two."""


def climb(
    form: str,
    settings: Sequence[str],
    model: Path,
    samples: Sequence[Feed],
    folder: Path,
    report: Callable[[float], None],
) -> None:
    """Files of one target with growing effort, out of one run: an effort begins with all that those below it do.

    Each file is written and checked as `onnxq quantize` does it, as soon as its effort is done. Its seconds are those
    of the run until then, less what the files before it took.
    """
    target = (AT_INPUTS if settings[0].startswith(SECOND) else TARGETS)[form]
    wanted = {int(setting[-1]): folder / f"{number}.onnx" for number, setting in enumerate(settings)}
    config = {**target.config, "effort": max(wanted), "minimum_sqnr_db": -100.0}  # a bad result is a row, not an error
    started, of_files = time.perf_counter(), 0.0
    ready = open_session(model, backend=target.backend, data=samples, config=config).calibrated()

    def write(effort: int, state: State) -> None:
        nonlocal of_files
        if effort not in wanted:
            return
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=folder) as out:
            written = emit_plan(replace(ready, state=state), Path(out))
            shutil.copy(written.model, wanted.pop(effort))
        report(time.perf_counter() - started - of_files)
        of_files += time.perf_counter() - begun

    write(0, ready.state)
    if wanted:
        improve_model(ready, folder, reached=lambda level, state: write(level.effort, state))
        for effort in sorted(wanted):  # calibration alone was so good that nothing was tried
            write(effort, ready.state)


def _writer(target: Target, effort: int) -> Writer:
    def write(model: Path, samples: Sequence[Feed], result: Path) -> None:
        config = {**target.config, "effort": effort, "minimum_sqnr_db": -100.0}  # a bad result is a row, not an error
        out = result.parent / "out"
        written = onnxq.quantize(model, backend=target.backend, data=samples, out=out, config=config)
        shutil.copy(written.model, result)

    return write


WRITERS: dict[str, dict[str, Writer]] = {
    form: {f"effort {effort}": _writer(target, effort) for effort in EFFORTS} for form, target in TARGETS.items()
}
"""Each file from the beginning, as `onnxq quantize` writes it."""


if __name__ == "__main__":
    main(JOBS, "onnxq", WRITERS, Climber(SETTINGS, climb))
