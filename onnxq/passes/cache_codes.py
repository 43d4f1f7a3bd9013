"""Keys and values that GroupQueryAttention keeps in 8 or 4 bits, as float operators compute them.

    code = clip(round(x / scale), -128 or -8, 127 or 7)

8 bits are int8 tensors. 4 bits are uint8 tensors of two codes each, 8 above what they stand for, the first in the low
half. The operator attends to the values of its codes, of the new tokens too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.passes.rewriter import Declined
from onnxq.passes.steps import Steps

KIND = ("k_quant_type", "v_quant_type")
SCALE = (12, 13)
"""Attribute and input for keys and for values."""
STORED = {np.dtype(np.int8): 8, np.dtype(np.uint8): 4}
"""The type of a cache of codes -> their bits."""


@dataclass(frozen=True)
class CacheCodes:
    """The codes of a cache (batch, heads, length, size), with the scale that its values have."""

    steps: Steps
    bits: int
    scale: Any
    heads: tuple[int, int]
    """Their number and the size of one."""

    @staticmethod
    def of(steps: Steps, index: int, cache: Any, heads: tuple[int, int]) -> CacheCodes | None:
        """Those of keys (`index` 0) or values (1); None for a cache in float."""
        kind = steps.node.attrs.get(KIND[index], "NONE")
        scale = steps.input(SCALE[index])
        if kind == "NONE":
            return None
        bits = STORED.get(steps.dtype(cache))
        if bits is None or scale is None or heads[1] * bits % 8:
            raise Declined(f"its cache of {steps.dtype(cache).name} is quantized in a way that is not known")
        shape = (1, 1, 1, 1) if kind == "PER_TENSOR" else (1, heads[0], 1, heads[1])
        return CacheCodes(steps, bits, steps.reshape(scale, *shape), heads)

    def rounded(self, values: Any) -> Any:
        """Codes as float numbers."""
        steps, half = self.steps, 2.0 ** (self.bits - 1)
        near = steps.typed(steps.op("Round", steps.op("Div", values, self.scale)), values)
        return steps.typed(
            steps.op("Clip", near, steps.number(-half, values), steps.number(half - 1, values), role="codes"), values
        )

    def values(self, codes: Any) -> Any:
        return self.steps.typed(self.steps.op("Mul", codes, self.scale, role="cached"), codes)

    def unpacked(self, cache: Any) -> Any:
        """The codes that a cache holds, as float numbers."""
        steps = self.steps
        wide = steps.cast(cache, steps.dtype(self.scale))
        wide.dtype = steps.dtype(self.scale)
        if self.bits == 8:
            return wide
        sixteen = steps.number(16.0, wide)
        high = steps.typed(steps.op("Floor", steps.op("Div", wide, sixteen)), wide)
        low = steps.typed(steps.op("Sub", wide, steps.op("Mul", high, sixteen)), wide)
        pairs = [steps.typed(steps.op("Unsqueeze", part, steps.ints(4)), wide) for part in (low, high)]
        apart = steps.reshape(steps.concat(4, *pairs), 0, 0, -1, self.heads[1])
        return steps.typed(steps.op("Sub", apart, steps.number(8.0, wide)), wide)

    def packed(self, codes: Any) -> Any:
        """The cache that holds these codes."""
        steps = self.steps
        if self.bits == 8:
            return self._stored(codes, np.int8)
        raised = steps.typed(steps.op("Add", codes, steps.number(8.0, codes)), codes)
        pairs = steps.reshape(raised, 0, 0, -1, self.heads[1] // 2, 2)
        low, high = steps.split(pairs, 4, (1, 1))
        both = steps.typed(steps.op("Add", low, steps.op("Mul", high, steps.number(16.0, codes))), codes)
        return self._stored(steps.reshape(both, 0, 0, -1, self.heads[1] // 2), np.uint8)

    def _stored(self, codes: Any, kind: type) -> Any:
        made = self.steps.cast(codes, kind)
        made.dtype = np.dtype(kind)
        return made
