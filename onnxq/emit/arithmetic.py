"""Quantizers as float ONNX operators: `onnxq.numerics.fake_quantize`, bit for bit, where QuantizeLinear cannot say it.

    affine    x / scale, Clip to [qmin - zero_point, qmax - zero_point], round, times scale
    nnie      round(16 * log2 |x|) in float64, and a table of the float32 values of the codes
    bfp16     see `onnxq.emit.block_arithmetic`

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
        self.kind = graph.dtype(source) or np.dtype(np.float32)

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
        scale = self.constant("scale", shaped(parameters.scale, parameters, rank))
        low = self.constant("low", shaped(np.float32(spec.qmin) - zero_point, parameters, rank))
        high = self.constant("high", shaped(np.float32(spec.qmax) - zero_point, parameters, rank))
        x = self.cast(self.source, np.dtype(np.float32))
        steps = self.add("Div", [x, scale])
        steps = self.add("Min", [self.add("Max", [steps, low]), high])  # Clip takes single numbers only
        # Adding zero turns -0 into +0, which is what integers have.
        rounded = self.add("Add", [self._rounded(steps, spec.rounding), self.constant("zero", np.float32(0.0))])
        return self.cast(self.add("Mul", [rounded, scale]), self.kind)

    def nnie(self, parameters: QParams) -> Any:
        clip = float(parameters.scale)
        positive_from, negative_from = (float(bound) for bound in nnie_bounds(clip))
        offset = float(nnie_steps(clip) - LEVELS)
        x = self.cast(self.source, np.dtype(np.float64))
        steps = self.constant("steps", np.float64(STEPS_PER_OCTAVE / np.log(2.0)))
        level = self.add("Mul", [self.add("Log", [self.add("Abs", [x])]), steps])
        level = self.add("Sub", [self.add("Round", [level]), self.constant("offset", np.float64(offset))])
        level = self.add("Min", [level, self.constant("levels", np.float64(LEVELS))])
        zero = self.constant("zero", np.float64(0.0))
        one = self.constant("one", np.float64(1.0))
        code_of_zero = self.constant("code_of_zero", np.float64(ZERO_CODE))
        above = self.add("Max", [level, zero])
        below = self.add("Add", [self.add("Max", [level, one]), code_of_zero])
        is_positive = self.add(
            "GreaterOrEqual", [x, self.constant("positive", np.float64(positive_from))], np.dtype(bool)
        )
        is_negative = self.add("Less", [x, self.constant("negative", np.float64(-negative_from))], np.dtype(bool))
        double = np.dtype(np.float64)
        not_positive = self.add("Where", [is_negative, below, code_of_zero], double)
        codes = self.add("Where", [is_positive, above, not_positive], double)
        index = self.cast(codes, np.dtype(np.int64))
        table = self.constant("values", nnie_table(clip))
        return self.cast(self.add("Gather", [table, index], np.dtype(np.float32)), self.kind)

    def _rounded(self, x: Any, rounding: str) -> Any:
        if rounding == "half_even":
            return self.add("Round", [x])
        if rounding == "floor":
            return self.add("Floor", [x])
        if rounding == "half_up":
            return self._nearest(x, "GreaterOrEqual")
        # Away from zero and towards it: the same on both sides of zero.
        size = self._nearest(self.add("Abs", [x]), "GreaterOrEqual" if rounding == "half_away" else "Greater")
        return self.add("Mul", [self.add("Sign", [x]), size])

    def _nearest(self, x: Any, comparison: str) -> Any:
        """floor(x), plus 1 where the rest is above (or at) a half."""
        floor = self.add("Floor", [x])
        rest = self.add("Sub", [x, floor])
        up = self.add(comparison, [rest, self.constant("half", np.float32(0.5))], np.dtype(bool))
        return self.add("Add", [floor, self.cast(up, np.dtype(np.float32))])

    def cast(self, tensor: Any, kind: np.dtype[Any]) -> Any:
        if self.graph.dtype(tensor) == kind:
            return tensor
        return self.add("Cast", [tensor], kind, {"to": kind})

    def constant(self, what: str, values: Any) -> Any:
        return self.graph.add_constant(f"{self.source.name}_{what}", np.asarray(values), scope=self._scope)

    def add(
        self,
        op: str,
        inputs: list[Any],
        kind: np.dtype[Any] | None = None,
        attrs: dict[str, Any] | None = None,
        *,
        shaped: bool = True,
    ) -> Any:
        """One more operator and its result, of the shape of the source or (shaped=False) of one that nobody tells."""
        name = f"{self.source.name}_{op}"
        shape = self.source.shape if shaped else None
        made = self.graph.add_variable(name, kind or self.graph.dtype(inputs[0]), shape)
        self.graph.add_node(op, inputs, [made], attrs=attrs or {}, name=name, scope=self._scope)
        return made
