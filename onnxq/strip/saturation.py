"""Activations that a quantizer has swallowed: where the grid begins at 0, saturation was the Relu.

Tools take a Relu (or a Clip to 0 .. 6) out of the graph where the quantizer behind it cuts off at the same numbers.
When the quantizer goes, the operator has to come back: otherwise the float model would compute something else. The
upper end of a range is the largest value that calibration has seen, and cuts off nothing on purpose, except at 6.

A grid also begins at 0 where everything below is nearer to 0 than to its next number: a GELU never goes below -0.17.
Then it is rounding that has made 0 of it, and no operator comes back. A Clip to other bounds cannot be told from a
range that calibration has found; who wants all of them can keep every range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from onnxq.graph import Graph
from onnxq.graph.signs import Signs
from onnxq.passes.edits import scalar
from onnxq.strip.grid import Grid, Stays

SIX = 6.0
"""Where a ReLU6 ends."""

ROUNDING = 1e-5
"""How far, relatively, (qmax - qmin) * scale may be from 6 when the scale was made of it in float32."""

LOWEST = {"Gelu": -0.1701, "HardSwish": -0.3751, "Mish": -0.3089, "Elu": -1.0, "Celu": -1.0, "Selu": -1.7582}
"""Activations that go below 0 and have a lowest value."""

GATED_LOWEST = {"Softplus": -0.3089, "Erf": -0.1701, "Tanh": -0.1701, "Sigmoid": -0.2785}
"""Of activations x * gate(x) by an operator of the gate, the first that is there: Mish, GELU, GELU by tanh, SiLU."""

HARD_LOWEST = -0.3751
"""Of all others: HardSwish."""

_OF_GATES = ("Add", "Mul", "Div", "Erf", "Tanh", "Sigmoid", "HardSigmoid", "Pow", "Clip", "Softplus", "Relu")
_LONGEST_GATE = 12
"""Operators that gates are written with, and how many there are at most."""


@dataclass(frozen=True)
class _Activation:
    """A Relu, or a Clip to these bounds."""

    op: str
    low: float = 0.0
    high: float = SIX


class Saturation:
    """Puts swallowed activations back into one graph; `restored` maps the tensor in front of each to its operator.

    With `keep_ranges` everything that a quantizer cuts off is cut off again, by a Clip to the ends of its grid.
    """

    def __init__(self, graph: Graph, *, keep_ranges: bool = False) -> None:
        self._graph = graph
        self._keep_ranges = keep_ranges
        self._signs = Signs(graph)
        self._made: dict[tuple[int, _Activation], Any] = {}
        self.restored: dict[str, str] = {}

    def limited(self, x: Any, grid: Grid, stored: np.dtype) -> Any:
        """`x` behind the activation that rounding it to a grid of this type stands for, mostly `x` itself."""
        ends = self._ends(grid, stored)
        if ends is None or self._graph.is_constant(x):
            return x
        swallowed = self._range(x, *ends) if self._keep_ranges else self._swallowed(x, grid, *ends)
        if swallowed is None:
            return x
        key = (id(x), swallowed)
        if key not in self._made:
            self._made[key] = self._add(x, swallowed)
            self.restored[str(x.name)] = swallowed.op
        return self._made[key]

    def _ends(self, grid: Grid, stored: np.dtype) -> tuple[np.ndarray, np.ndarray] | None:
        """The lowest and the highest number of a grid, for each of its scales; None where they are not known."""
        graph = self._graph
        if stored.name.startswith("float") or not graph.is_constant(grid.scale):
            return None
        if grid.zero_point is not None and not graph.is_constant(grid.zero_point):
            return None
        limits: Any = ml_dtypes.iinfo(stored)  # type: ignore[no-untyped-call]
        zeros = np.zeros(1) if grid.zero_point is None else graph.values(grid.zero_point).astype(np.float64)
        scales = graph.values(grid.scale).astype(np.float64)
        return (limits.min - zeros) * scales, (limits.max - zeros) * scales

    def _range(self, x: Any, low: np.ndarray, high: np.ndarray) -> _Activation | None:
        if low.size != 1:
            raise Stays(f"'{x.name}' has a range for each channel, which no Clip can keep")
        return _Activation("Clip", float(low.reshape(())), float(high.reshape(())))

    def _swallowed(self, x: Any, grid: Grid, low: np.ndarray, high: np.ndarray) -> _Activation | None:
        if low.any() or self._graph.producer(x) is None or self._signs.never_negative(x):
            return None
        if self._lowest(x) >= -float(self._graph.values(grid.scale).min()) / 2:
            return None
        return _Activation("Clip" if np.allclose(high, SIX, rtol=ROUNDING, atol=0) else "Relu")

    def _lowest(self, x: Any) -> float:
        """The lowest value that an activation can make; minus infinity where that is not known."""
        node = self._graph.producer(x)
        if node is None or node.domain:
            return -np.inf
        if node.op in LOWEST:
            return LOWEST[node.op] * float(node.attrs.get("alpha", 1.0)) if node.op != "Selu" else LOWEST[node.op]
        if node.op != "Mul":
            return -np.inf
        for one, other in (node.inputs, node.inputs[::-1]):
            factor = scalar(self._graph, one)
            if factor is not None and factor > 0:  # 0.5 * (x * (1 + erf(x))) is a GELU too
                return self._lowest(other)
            gate = self._gate(other, one)
            if gate:
                return next((lowest for op, lowest in GATED_LOWEST.items() if op in gate), HARD_LOWEST)
        return -np.inf

    def _gate(self, gate: Any, x: Any) -> list[str]:
        """The operators that compute `gate` of nothing but `x`; none where it is something else."""
        pending, found = [gate], list[str]()
        while pending:
            tensor = pending.pop()
            if tensor is x or self._graph.is_constant(tensor):
                continue
            node = self._graph.producer(tensor)
            if node is None or node.domain or node.op not in _OF_GATES or len(found) == _LONGEST_GATE:
                return []
            found.append(str(node.op))
            pending.extend(t for t in node.inputs if t.name)
        return found

    def _add(self, x: Any, activation: _Activation) -> Any:
        graph, home = self._graph, self._graph.home_of(x)
        op, low, high = activation.op, activation.low, activation.high
        inputs, attrs = [x], {}
        if op == "Clip" and graph.opset < 11:
            attrs = {"min": low, "max": high}
        elif op == "Clip":
            dtype = graph.dtype(x) or np.dtype(np.float32)
            inputs += [
                graph.add_constant(f"{x.name}_{name}", dtype.type(end), scope=home)
                for name, end in (("min", low), ("max", high))
            ]
        made = graph.add_variable(f"{x.name}_{op}", x.dtype, x.shape)
        graph.add_node(op, inputs, [made], attrs=attrs, name=f"{x.name}_{op}", scope=home)
        return made
