"""Small calibrated models with what an improvement gets: state, task, an evaluator on other samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.ptq.method import Improved, Samples, State, Task, read_improvement
from onnxq.ptq.search.evaluator import Evaluator
from onnxq.session.session import open_session
from tests.golden_graphs import GOLDEN

FEW_BITS = "academic:w_bits=3,a_bits=4"
METHODS = ("adaround", "adaquant", "brecq", "qdrop", "autoround")


@dataclass(frozen=True)
class Case:
    """A calibrated model; the last quarter of its samples is for the evaluator."""

    state: State
    task: Task
    held: list[dict[str, np.ndarray]]

    @property
    def evaluator(self) -> Evaluator:
        return Evaluator(self.task.reference, self.task.backend, self.held)

    def run(self, method: str, **changes: Any) -> Improved:
        return read_improvement(method).run(self.state, replace(self.task, **changes))


def case(
    model: Any,
    samples: list[dict[str, np.ndarray]],
    backend: str = FEW_BITS,
    folder: Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> Case:
    made = open_session(model, backend=backend, data=samples, config=config).calibrated()
    state = made.state
    count = max(1, len(samples) * 3 // 4)
    task = Task(
        state.graph.copy(), made.session.prepared.backend, Samples(made.session.dataset, tuple(range(count))), folder
    )
    return Case(state, task, samples[count:])


def golden(name: str, backend: str = FEW_BITS, folder: Path | None = None) -> Case:
    made = GOLDEN[name]()
    return case(made.model, made.samples, backend, folder)
