"""Ranges of constants: weights, and whatever else of a plan is known without running the model."""

from __future__ import annotations

from collections.abc import Iterable

from onnxq.calibrate.precision import fitted
from onnxq.errors import SpecError
from onnxq.graph import Graph
from onnxq.observers import Observer, make_observer, observe_constant
from onnxq.types import Placement, QParamsTable


def calibrate_constants(graph: Graph, placements: Iterable[Placement], table: QParamsTable) -> int:
    """Fill in the parameters of each placement from its tensor's values; one tensor is in memory at a time."""
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
        qparams = observe_constant(graph.values(name), observers[placement.observer], placement.spec, tensor=name)
        table.put(name, fitted(graph, name, qparams), placement.observer)
        count += 1
    return count
