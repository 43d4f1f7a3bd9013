"""Too few samples: evaluation samples that are left out of the calibration lose much more than inside of it."""

from __future__ import annotations

from collections.abc import Sequence

from onnxq.calibrate import activation_leaders, calibrate, gather
from onnxq.diagnose.causes import Cause, Costly, TooFewSamples
from onnxq.diagnose.experiment import range_of
from onnxq.diagnose.noise import worst_db
from onnxq.mixed_precision.study import Study
from onnxq.ptq.method import State
from onnxq.ptq.search.sample_split import split_samples
from onnxq.refine import refine
from onnxq.runtime import Dataset

MANY = 128
"""Nobody asks whether this many samples are too few."""

LOST_DB = 1.0
WIDER = 1.1
"""A range that is this many times as wide with the other samples shows it."""


def too_few_samples(study: Study, state: State, dataset: Dataset, costly: Sequence[Costly]) -> Cause | None:
    """The cause, where there is one; `state` is calibrated on all samples, and what `costly` names is looked at."""
    split = split_samples(dataset)
    leaders = activation_leaders(state.plan)
    if split is None or not leaders or len(split.fitted) > MANY:
        return None
    graph = study.graph
    statistics = gather(graph, leaders, split.fitted, engine=study.config.engine())
    table, plan, _ = calibrate(graph, state.plan, statistics=statistics)
    other = State(graph, plan, refine(graph, plan, table, study.prepared.backend).qparams)
    lost = worst_db(study.score(state)) - worst_db(study.score(other))
    if lost < LOST_DB:
        return None
    findings = []
    for row in costly:
        if row.name in other.qparams.entries and row.name in state.qparams.entries and row.role != "weight":
            inside, beyond = (_reach(one, row.name) for one in (other, state))
            if beyond > WIDER * inside:
                findings.append(TooFewSamples(row.name, len(split.fitted), inside, beyond))
    return Cause("too_few_samples", tuple(findings), 0.0, lost) if findings else None


def _reach(state: State, tensor: str) -> float:
    low, high = range_of(state.qparams[tensor])
    return float(max(-low.min(), high.max()))
