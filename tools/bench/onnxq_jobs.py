"""What is measured of onnxq, as jobs that run in this process (times) or in one of their own (peak memory)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnxruntime as ort

import onnxq
from onnxq.observers import HistogramStatistic, make_observer
from onnxq.observers import qparams as observed_qparams
from onnxq.prepare import Prepared, make_plan
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.runtime.tap import collect
from onnxq.types import PerChannel, QParams, QuantPlan
from tools.bench.peers.protocol import Action, Job, main
from tools.bench.samples import Feed

BACKEND = "onnxruntime"
HISTOGRAM_METHODS = ("percentile", "mse", "kl")


def floor(model: Path, samples: Sequence[Feed], folder: Path) -> Action:
    """Plain inference: every optimization, all cores, one sample at a time, after one run to warm up."""
    options = ort.SessionOptions()
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
    """From a file to a checked file."""
    # Random weights have outputs that no quantization keeps well: the check runs, its limit is out of the way.
    config = {"observer": "minmax", "minimum_sqnr_db": -100.0}
    return lambda: onnxq.quantize(model, backend=BACKEND, data=samples, out=folder / "quantized", config=config)


def three_methods(prepared: Prepared, plan: QuantPlan, dataset: Dataset) -> dict[str, dict[str, QParams]]:
    """Method -> tensor -> parameters, for every observed activation, from one pass over the data."""
    leaders = [placement for placement in plan if placement.observe and placement.tie is None]
    axes = {placement.tensor: _axis(placement.spec.granularity) for placement in leaders}
    statistics = {
        (tensor, axes[placement.tensor]): HistogramStatistic(axes[placement.tensor])
        for placement in leaders
        for tensor in placement.observe
    }
    wanted: dict[str, list[HistogramStatistic]] = {}
    for (tensor, _), statistic in statistics.items():
        wanted.setdefault(tensor, []).append(statistic)
    collect(prepared.graph, dataset, wanted)

    tables: dict[str, dict[str, QParams]] = {method: {} for method in HISTOGRAM_METHODS}
    for placement in leaders:
        axis = axes[placement.tensor]
        whole = statistics[placement.observe[0], axis]
        if len(placement.observe) > 1:
            whole = HistogramStatistic(axis)
            for tensor in placement.observe:
                whole.merge(statistics[tensor, axis])
        for method in HISTOGRAM_METHODS:
            found = observed_qparams(make_observer(method), whole, placement.spec, tensor=placement.tensor)
            tables[method][placement.tensor] = found
    return tables


def _axis(granularity: object) -> int | None:
    return granularity.axis if isinstance(granularity, PerChannel) else None


def _ready(model: Path, samples: Sequence[Feed], observer: str) -> tuple[Prepared, QuantPlan, Dataset]:
    prepared = onnxq.prepare(model, BACKEND, {"observer": observer})
    return prepared, make_plan(prepared), open_dataset(samples, input_infos(prepared.graph))


JOBS: dict[str, Job] = {
    "float inference": floor,
    "calibrate minmax": minmax,
    "calibrate percentile + mse + kl": histogram,
    "quantize minmax": whole,
}

if __name__ == "__main__":
    main(JOBS, "onnxq")
