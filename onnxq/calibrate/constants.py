"""Ranges of constants: weights, and whatever else of a plan is known without running the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from onnxq.calibrate.limits import limit_values, raise_scale
from onnxq.calibrate.precision import fitted
from onnxq.errors import SpecError
from onnxq.graph import Graph
from onnxq.observers import Observer, make_observer, observe_constant
from onnxq.types import Placement, QParamsTable


def calibrate_constants(
    graph: Graph,
    placements: Iterable[Placement],
    table: QParamsTable,
    shared: Mapping[str, Sequence[str]] | None = None,
) -> int:
    """Fill in the parameters of each placement from its tensor's values; one tensor is in memory at a time.

    `shared` maps a leader to the constants that use its parameters; their values count too.
    """
    count = 0
    observers: dict[str, Observer] = {}
    for placement in placements:
        name = placement.tensor
        if placement.observer not in observers:
            observers[placement.observer] = make_observer(placement.observer)
        if not graph.is_constant(name):
            raise SpecError(
                f"'{name}' is not a constant and observes no tensor, so nothing sets its range: list the tensors to "
                "observe in its placement, or tie it to another tensor"
            )
        values, limited = limit_values(_values(graph, name, (shared or {}).get(name, ())), placement)
        found = observe_constant(values, observers[placement.observer], placement.spec, tensor=name)
        qparams, raised = raise_scale(found, placement)
        table.put(name, fitted(graph, name, qparams), placement.observer, *limited, *raised)
        count += 1
    return count


def _values(graph: Graph, leader: str, others: Sequence[str]) -> np.ndarray:
    if not others:
        return graph.values(leader)
    return np.concatenate([graph.values(name).ravel() for name in (leader, *others)])
