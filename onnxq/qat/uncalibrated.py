"""A model with a plan and parameters to begin with, before any data was seen: weights have theirs, activations none.

A net can be made of it, with every parameter that an optimizer wants to know; calibration gives it its scales later.
"""

from __future__ import annotations

import numpy as np

from onnxq.calibrate.calibrate import complete, shared_constants
from onnxq.calibrate.constants import calibrate_constants
from onnxq.calibrate.precision import fitted
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, collector_paused
from onnxq.numerics import qparams_from_range
from onnxq.ptq.method import State
from onnxq.session.session import Calibrated, Session
from onnxq.types import PerTensor, Placement, QParamsTable

FIRST_RANGE = 1.0
"""Activations are taken to lie between its negative and itself, as long as none was seen."""


def uncalibrated(session: Session) -> Calibrated:
    """The plan with the parameters of constants; those of activations stand for a range that nobody has seen."""
    graph, plan = session.prepared.graph, session.plan()
    table = QParamsTable()
    leaders = [placement for placement in plan if placement.observe]
    constants = [placement for placement in plan if not (placement.tie or placement.derive or placement.observe)]
    with collector_paused(), graph.unchanging():
        calibrate_constants(graph, constants, table, shared_constants(graph, plan))
        for placement in leaders:
            high = np.full(_scale_shape(graph, placement), FIRST_RANGE)
            found = qparams_from_range(-high, high, placement.spec)
            table.put(placement.tensor, fitted(graph, placement.tensor, found), "not calibrated")
        complete(graph, plan, table)
    return Calibrated(session, State(graph, plan, table))


def _scale_shape(graph: Graph, placement: Placement) -> tuple[int, ...]:
    if isinstance(placement.spec.granularity, PerTensor):
        return ()
    shape = graph.shape(placement.tensor)
    sizes = [size if isinstance(size, int) else 1 for size in shape or ()]
    axis = placement.spec.granularity.axis
    if shape is None or not isinstance(shape[axis], int):
        raise UnsupportedError(
            f"'{placement.tensor}' has a scale for each channel, and how many there are calibration has to find: give "
            "samples (enable_calibration, then calls with some batches), and then ask for the torch module"
        )
    return placement.spec.scale_shape(tuple(sizes))
