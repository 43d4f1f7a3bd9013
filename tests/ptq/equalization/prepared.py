"""Models made ready for an improvement: placed and calibrated, with what compares them before and after."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx

from onnxq.calibrate import calibrate
from onnxq.graph import Graph
from onnxq.ptq.method import Improved, Samples, State, Task, read_improvement
from onnxq.ptq.search.evaluator import Evaluator
from onnxq.refine import refine
from onnxq.runtime.session import float_session, run_session
from onnxq.session.session import open_session

Feeds = list[dict[str, np.ndarray]]

PER_TENSOR, PER_CHANNEL = "qnn", "onnxruntime"
"""Targets with uint8 activations, and int8 weights with one scale or with one for each channel."""


@dataclass(frozen=True)
class Ready:
    """A calibrated model; all of its samples are there to fit to."""

    state: State
    task: Task
    feeds: Feeds

    def improve(self, text: str, noise: float | None = None) -> Improved:
        return read_improvement(text).run(self.state, replace(self.task, noise=noise))

    def recalibrated(self, state: State) -> State:
        """With new parameters, within what the target asks for, as the search finds them."""
        found = calibrate(state.graph, state.plan, self.task.samples)
        return State(state.graph, found.plan, refine(state.graph, found.plan, found.qparams, self.task.backend).qparams)

    def sqnr(self, state: State) -> float:
        """The mean SQNR of the outputs, in dB, of what the target computes."""
        return Evaluator(self.task.reference, self.task.backend, self.feeds)(state).value

    def change(self, graph: Graph) -> float:
        """The largest difference of a float output to that of the reference, relative to its largest value."""
        return largest_change(self.task.reference, graph, self.feeds)


def ready(model: onnx.ModelProto, feeds: Feeds, backend: str = PER_TENSOR, **config: object) -> Ready:
    found = open_session(model, backend=backend, data=feeds, config=config or None).calibrated()
    graph = found.state.graph
    task = Task(graph.copy(), found.session.prepared.backend, Samples(found.session.dataset, tuple(range(len(feeds)))))
    return Ready(found.state, task, feeds)


def largest_change(one: Graph, other: Graph, feeds: Feeds) -> float:
    sessions = float_session(one), float_session(other)
    worst = 0.0
    for feed in feeds:
        before, after = (run_session(session, one.output_names, feed, "a sample") for session in sessions)
        for old, new in zip(before, after, strict=True):
            worst = max(worst, float(np.abs(old - new).max() / max(np.abs(old).max(), 1e-30)))
    return worst
