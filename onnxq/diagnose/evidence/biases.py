"""Biases that do not fit: weights whose scale was enlarged for them, and biases with coarse steps of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxq.calibrate.biases import float_biases
from onnxq.diagnose.causes import BiasOverflow
from onnxq.diagnose.evidence.case import Case, Evidence
from onnxq.diagnose.experiment import Change, in_turn, step_of, with_parameters, without
from onnxq.numerics import qparams_from_range
from onnxq.types import PerChannel, PerTensor, QParams, QuantSpec

ENLARGED = 1.5
"""A scale that is this many times as large as the weight asks for has cost half a bit."""


def biases(case: Case) -> Iterator[Evidence]:
    plan, graph = case.state.plan, case.graph
    costly = {name: row for row in case.costly for name in row.tensors}
    derived = [placement for placement in plan if placement.derive is not None]
    for placement in (*derived, *float_biases(graph, plan)):
        assert placement.derive is not None
        weight = plan.leader(placement.derive.weight)
        row = costly.get(weight)
        if row is None or not graph.is_constant(weight):
            continue
        own = _own_parameters(graph.values(weight), plan[weight].spec)
        held = case.state.qparams[weight]
        if own is None or own.scale.shape != held.scale.shape:
            continue
        enlarged = float((held.scale / own.scale).max())
        largest = float(np.abs(graph.values(placement.tensor).astype(np.float64)).max(initial=0.0))
        step = step_of(case.state.qparams[plan.leader(placement.derive.input)]) * float(own.scale.max())
        if enlarged >= ENLARGED and largest / max(step, 1e-300) > placement.spec.qmax / 4:
            finding = BiasOverflow(row.name, row.node, placement.tensor, enlarged, largest, step * enlarged)
            gone = [placement.tensor] if placement.tensor in plan else []
            yield Evidence(finding, in_turn([_scale(weight, own), without(gone)]))
    for row in case.costly:
        if row.role == "bias":
            largest = float(np.abs(graph.values(row.name)).max(initial=0.0))
            finding = BiasOverflow(row.name, row.node, row.name, 1.0, largest, step_of(case.state.qparams[row.name]))
            yield Evidence(finding, without(row.tensors))


def _scale(weight: str, parameters: QParams) -> Change:
    return lambda state: with_parameters(state, [weight], lambda name: parameters)


def _own_parameters(values: np.ndarray, spec: QuantSpec) -> QParams | None:
    """What the values of a weight ask for."""
    if not spec.evenly_spaced:
        return None
    if isinstance(spec.granularity, PerTensor):
        return qparams_from_range(float(values.min()), float(values.max()), spec)
    if isinstance(spec.granularity, PerChannel):
        rows = np.moveaxis(values, spec.granularity.axis, 0).reshape(values.shape[spec.granularity.axis], -1)
        return qparams_from_range(rows.min(axis=1), rows.max(axis=1), spec)
    return None
