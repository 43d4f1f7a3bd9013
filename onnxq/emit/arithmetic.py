"""Quantizers as float ONNX operators: `onnxq.numerics.fake_quantize`, bit for bit, where QuantizeLinear cannot say it.

    affine    x / scale, Clip to [qmin - zero_point, qmax - zero_point], round, times scale
    nnie      round(16 * log2 |x|) in float64, and a table of the float32 values of the codes

Limiting comes before rounding, as in `numerics`: both bounds are integers, so that nothing changes by it, and halves
are then told exactly from their neighbours (x - floor(x) is exact).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.numerics.nnie import LEVELS, STEPS_PER_OCTAVE, ZERO_CODE, nnie_bounds, nnie_steps, nnie_table
from onnxq.types import QParams

Shaping = Callable[[np.ndarray, QParams, int], np.ndarray]


class Arithmetic:
    """Adds the operators for one tensor, in the scope that makes it."""

    def __init__(self, graph: Graph, source: Any) -> None:
        self.graph = graph
        self.source = source
        self._scope = graph.home_of(source)
        self._kind = graph.dtype(source) or np.dtype(np.float32)

    def affine(self, parameters: QParams, shaped: Shaping) -> Any:
        spec = parameters.spec
        rank = 0
        if parameters.scale.ndim:
            if self.source.shape is None:
                raise UnsupportedError(
                    f"tensor '{self.source.name}' has an unknown rank, so that its scales along an axis cannot be "
                    "simulated. Quantize it per tensor"
                )
            rank = len(self.source.shape)
        zero_point = parameters.zero_point.astype(np.float32)
        scale = self._constant("scale", shaped(parameters.scale, parameters, rank))
        low = self._constant("low", shaped(np.float32(spec.qmin) - zero_point, parameters, rank))
        high = self._constant("high", shaped(np.float32(spec.qmax) - zero_point, parameters, rank))
        x = self._cast(self.source, np.dtype(np.float32))
        steps = self._add("Div", [x, scale])
        steps = self._add("Min", [self._add("Max", [steps, low]), high])  # Clip takes single numbers only
        # Adding zero turns -0 into +0, which is what integers have.
        rounded = self._add("Add", [self._rounded(steps, spec.rounding), self._constant("zero", np.float32(0.0))])
        return self._cast(self._add("Mul", [rounded, scale]), self._kind)

    def nnie(self, parameters: QParams) -> Any:
        clip = float(parameters.scale)
        positive_from, negative_from = (float(bound) for bound in nnie_bounds(clip))
        offset = float(nnie_steps(clip) - LEVELS)
        x = self._cast(self.source, np.dtype(np.float64))
        steps = self._constant("steps", np.float64(STEPS_PER_OCTAVE / np.log(2.0)))
        level = self._add("Mul", [self._add("Log", [self._add("Abs", [x])]), steps])
        level = self._add("Sub", [self._add("Round", [level]), self._constant("offset", np.float64(offset))])
        level = self._add("Min", [level, self._constant("levels", np.float64(LEVELS))])
        zero = self._constant("zero", np.float64(0.0))
        one = self._constant("one", np.float64(1.0))
        code_of_zero = self._constant("code_of_zero", np.float64(ZERO_CODE))
        above = self._add("Max", [level, zero])
        below = self._add("Add", [self._add("Max", [level, one]), code_of_zero])
        is_positive = self._add(
            "GreaterOrEqual", [x, self._constant("positive", np.float64(positive_from))], np.dtype(bool)
        )
        is_negative = self._add("Less", [x, self._constant("negative", np.float64(-negative_from))], np.dtype(bool))
        double = np.dtype(np.float64)
        not_positive = self._add("Where", [is_negative, below, code_of_zero], double)
        codes = self._add("Where", [is_positive, above, not_positive], double)
        index = self._cast(codes, np.dtype(np.int64))
        table = self._constant("values", nnie_table(clip))
        return self._cast(self._add("Gather", [table, index], np.dtype(np.float32)), self._kind)

    def _rounded(self, x: Any, rounding: str) -> Any:
        if rounding == "half_even":
            return self._add("Round", [x])
        if rounding == "floor":
            return self._add("Floor", [x])
        if rounding == "half_up":
            return self._nearest(x, "GreaterOrEqual")
        # Away from zero and towards it: the same on both sides of zero.
        size = self._nearest(self._add("Abs", [x]), "GreaterOrEqual" if rounding == "half_away" else "Greater")
        return self._add("Mul", [self._add("Sign", [x]), size])

    def _nearest(self, x: Any, comparison: str) -> Any:
        """floor(x), plus 1 where the rest is above (or at) a half."""
        floor = self._add("Floor", [x])
        rest = self._add("Sub", [x, floor])
        up = self._add(comparison, [rest, self._constant("half", np.float32(0.5))], np.dtype(bool))
        return self._add("Add", [floor, self._cast(up, np.dtype(np.float32))])

    def _cast(self, tensor: Any, kind: np.dtype[Any]) -> Any:
        if self.graph.dtype(tensor) == kind:
            return tensor
        return self._add("Cast", [tensor], kind, {"to": kind})

    def _constant(self, what: str, values: Any) -> Any:
        return self.graph.add_constant(f"{self.source.name}_{what}", np.asarray(values), scope=self._scope)

    def _add(
        self, op: str, inputs: list[Any], kind: np.dtype[Any] | None = None, attrs: dict[str, Any] | None = None
    ) -> Any:
        name = f"{self.source.name}_{op}"
        made = self.graph.add_variable(name, kind or self.graph.dtype(inputs[0]), self.source.shape)
        self.graph.add_node(op, inputs, [made], attrs=attrs or {}, name=name, scope=self._scope)
        return made
