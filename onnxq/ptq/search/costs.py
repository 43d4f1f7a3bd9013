"""What the methods of the search cost and gain, as far as that can be said before they have run.

For the time that is left, and for what a limit of time leaves out first. Costs are in rounds (one calibration, see
`onnxq.progress.tracker`), as measured on four trained networks, and are corrected while a run goes on; gains are dB,
rounded from networks of docs/accuracy.md with 8 and 4 bits: their order is what counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnxq.progress import Tracker
from onnxq.ptq.method import Chosen, method_name
from onnxq.ptq.search.schedule import Schedule


@dataclass(frozen=True)
class Cost:
    """What to expect of a method: `rounds` with its evaluation, and the dB that it gains."""

    rounds: float
    gain_db: float


UNKNOWN = Cost(3.0, 0.5)
"""A method of a plugin."""

COSTS = {
    "bias_correction": Cost(1.0, 3.0),
    "weight_scale_search": Cost(1.2, 2.0),
    "outlier_placement": Cost(0.5, 2.5),
    "insert_smoothing": Cost(1.5, 1.5),
    "range_setting": Cost(0.6, 1.0),
    "cross_layer_equalization": Cost(1.0, 0.8),
    "gptq": Cost(8.0, 0.7),
    "gptaq": Cost(10.0, 0.7),
    "rotation": Cost(1.5, 1.0),
    "smoothquant": Cost(3.0, 0.6),
    "awq": Cost(3.0, 0.5),
    "adaround": Cost(20.0, 0.5),
    "high_bias_absorption": Cost(1.0, 0.2),
    "outlier_channel_splitting": Cost(2.0, 0.3),
    "hqq": Cost(2.0, 0.5),
    "adaquant": Cost(15.0, 0.4),
    "brecq": Cost(20.0, 0.4),
    "qdrop": Cost(30.0, 0.4),
    "autoround": Cost(60.0, 0.4),
}

FIRST_EVALUATION = 0.6
"""Rounds that the first evaluation of the calibrated model takes, with the outputs of the float model."""


def cost_of(name: str) -> Cost:
    """What to expect of a method, as a schedule writes it."""
    return COSTS.get(method_name(name), UNKNOWN)


def in_order(schedule: Schedule) -> Iterator[str]:
    """The steps of a schedule as they follow one another where every method is tried once and nothing is deferred."""
    for stages in (schedule.stages, schedule.further):
        for stage in stages:
            yield from stage.methods
        yield from schedule.finish if stages else ()
    for roundings in schedule.roundings:
        for name in roundings.methods:
            yield name
            yield from schedule.finish


def stage_of(chosen: Chosen) -> str:
    """What a step is called where progress is told."""
    return f"{KIND}: {chosen.method.name}"


KIND = "improve"
"""Kind of the stages of a search."""


def announce_search(tracker: Tracker, schedule: Schedule) -> None:
    """Announce a whole search before it begins, as one stage."""
    names = list(in_order(schedule))
    if names:
        tracker.expect(KIND, FIRST_EVALUATION + sum(cost_of(name).rounds for name in names))
