"""What positions cost an operator: the squared error of its result, estimated from constants and calibrated positions.

A position that is raised makes finer steps and clips what is larger; one that is lowered makes coarser steps. Which
of the tensors around an operator should move is the question of whose error is smallest in the result:

    layer   K P(i) E(w) + |w|^2 E(i) + E(b) + E(o)      K products for each result, |w|^2 the squares of their weights
    Mul     P(i1) E(i0) + P(i0) E(i1) + E(o)
    others  E(i0) + E(i1) + ... + E(o)

P is the mean square of a tensor and E the mean squared error of holding it at its position. Both are exact for
constants; E of a bias is that of its worst channel, every result of which is off by it. An activation is taken to fill
the range of its calibrated position p evenly, up to R = 2^(7 - p): at position q its steps cost 4^-q / 12, and above p
what is clipped at r = 2^(7 - q) costs (R - r)^3 / 3 R.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from onnxq.graph import Graph
from onnxq.numerics import fake_quantize
from onnxq.numerics.positions import scale_at
from onnxq.targets.amd.dpu_rules import Positions, Site
from onnxq.types import QParams, QParamsTable, QuantPlan

_LAYERS = ("Conv", "Gemm")


class Costs:
    """The estimated squared error of the result of an operator whose tensors are held at some positions."""

    def __init__(self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, calibrated: Positions) -> None:
        self._graph = graph
        self._qparams = qparams
        self._calibrated = calibrated
        self._constants: dict[str, list[str]] = {}
        for placement in plan:
            if graph.is_constant(placement.tensor):
                self._constants.setdefault(plan.leader(placement.tensor), []).append(placement.tensor)
        self._error_of_constant = cache(self._uncached_error_of_constant)
        self._power_of_constant = cache(self._uncached_power_of_constant)

    def __call__(self, site: Site, positions: Positions) -> float:
        made = self._error(site.output, positions)
        if site.op in _LAYERS and site.weight is not None:
            return made + self._of_layer(site, positions)
        if site.op == "Mul" and len(site.inputs) == 2:
            first, second = site.inputs
            crossed = self._power(second) * self._error(first, positions)
            return made + crossed + self._power(first) * self._error(second, positions)
        return made + sum(self._error(slot, positions) for slot in site.inputs)

    def _of_layer(self, site: Site, positions: Positions) -> float:
        data, weight = site.inputs[0], site.weight
        products = self._products(site)
        of_weight = products * self._power(data) * self._error(weight, positions)
        of_data = products * self._power(weight) * self._error(data, positions)
        return of_weight + of_data + self._of_bias(site.bias, positions)

    def _of_bias(self, slot: str | None, positions: Positions) -> float:
        if slot is None or slot not in positions or slot not in self._constants:
            return self._error(slot, positions)
        return max(float(np.square(off, dtype=np.float64).max()) for off in self._off(slot, positions[slot]))

    def _products(self, site: Site) -> float:
        """Products that are added up for one result."""
        weights = self._values(site.weight)
        biases = self._values(site.bias)
        results = biases[0].size if biases and biases[0].size > 1 else weights[0].shape[0] if weights else 1
        return max(weights[0].size / results, 1.0) if weights else 1.0

    def _values(self, slot: str | None) -> list[np.ndarray]:
        return [self._graph.values(name) for name in self._constants.get(slot or "", ())]

    def _power(self, slot: str | None) -> float:
        if slot is None:
            return 0.0
        if slot in self._constants:
            return self._power_of_constant(slot)
        return float(_reach(self._calibrated[slot]) ** 2 / 3) if slot in self._calibrated else 0.0

    def _error(self, slot: str | None, positions: Positions) -> float:
        if slot is None or slot not in positions:
            return 0.0
        if slot in self._constants:
            return self._error_of_constant(slot, positions[slot])
        full, held = _reach(self._calibrated[slot]), _reach(positions[slot])
        clipped = max(full - held, 0.0) ** 3 / (3 * full)
        return float(4.0 ** -positions[slot] / 12 + clipped)

    def _uncached_power_of_constant(self, slot: str) -> float:
        return max(float(np.square(values, dtype=np.float64).mean()) for values in self._values(slot) if values.size)

    def _uncached_error_of_constant(self, slot: str, position: int) -> float:
        return max(float(np.square(off, dtype=np.float64).mean()) for off in self._off(slot, position))

    def _off(self, slot: str, position: int) -> list[np.ndarray]:
        """By how much each constant of a slot is off at a position."""
        held = self._qparams[slot]
        moved = QParams(held.spec, np.asarray(scale_at(position)).reshape(held.scale.shape), held.zero_point)
        return [fake_quantize(values, moved) - values for values in self._values(slot) if values.size]


def _reach(position: int) -> float:
    return float(np.ldexp(1.0, 7 - position))
