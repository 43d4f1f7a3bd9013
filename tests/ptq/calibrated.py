"""Models made ready for an improvement: calibrated, with samples to fit to and others to be evaluated on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx

from onnxq import demo
from onnxq.numerics import quantize
from onnxq.ptq.method import Improved, Samples, State, Task, read_improvement
from onnxq.ptq.search.evaluator import Evaluator
from onnxq.session.session import open_session

Feeds = list[dict[str, np.ndarray]]

FOUR_BITS = {"weight": {"bits": 4}}


@dataclass(frozen=True)
class Ready:
    state: State
    task: Task
    evaluator: Evaluator

    def improve(self, text: str) -> Improved:
        return read_improvement(text).run(self.state, self.task)

    def sqnr(self, state: State | None = None) -> float:
        """dB on samples that nothing was fitted to."""
        return self.evaluator(self.state if state is None else state).value


def ready(
    model: Any, feeds: Any, backend: str, config: Mapping[str, Any] | None = None, *, evaluated: Feeds | None = None
) -> Ready:
    """The first half of the feeds is there to fit to; the second to evaluate on, unless others are given."""
    found = open_session(model, backend=backend, data=feeds, config=dict(config or {})).calibrated()
    dataset, backend_of_run, graph = found.session.dataset, found.session.prepared.backend, found.state.graph
    assert dataset is not None
    count = len(dataset) if evaluated is not None else max(len(dataset) // 2, 1)
    task = Task(graph.copy(), backend_of_run, Samples(dataset, tuple(range(count))))
    held = list(dataset)[count:] if evaluated is None else evaluated
    return Ready(found.state, task, Evaluator(graph, backend_of_run, held))


@cache
def digits(backend: str, bits: int = 8) -> Ready:
    """The demo's classifier with 32 images to fit to and 24 others to evaluate on."""
    data = demo.load_data()
    evaluated = [{"image": data.test_images[i : i + 1]} for i in range(24)]
    config = {"weight": {"bits": bits}} if bits != 8 else {}
    return ready(onnx.load(demo.model_path()), {"image": data.calibration[:32]}, backend, config, evaluated=evaluated)


@cache
def improved(text: str, backend: str, bits: int = 8) -> Improved:
    """What an improvement makes of the classifier."""
    return digits(backend, bits).improve(text)


def numbers(state: State, tensor: str) -> np.ndarray:
    """What is stored for a weight."""
    return quantize(state.graph.values(tensor).astype(np.float32), state.qparams[tensor])


def weights(state: State) -> list[str]:
    return [placement.tensor for placement in state.plan if placement.role == "weight"]
