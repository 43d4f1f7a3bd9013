"""Squared errors of weights in blocks, for one set of scales after the other, in memory that is taken once.

Bit for bit the squares of `values - fake_quantize(values, qparams)`. What is left out changes no square: zero points
that are added to whole numbers and taken off again, and the sign of a zero.
"""

from __future__ import annotations

import numpy as np

from onnxq.types import PerBlock, QParams, QuantSpec
from onnxq.types.granularity import resolve_axis


class BlockSquares:
    """Of finite float32 values whose blocks are all whole (`fits`)."""

    def __init__(self, values: np.ndarray, spec: QuantSpec) -> None:
        assert isinstance(spec.granularity, PerBlock)
        self._axis = resolve_axis(spec.granularity.axis, values.ndim)
        size = spec.granularity.size
        before, after = values.shape[: self._axis], values.shape[self._axis + 1 :]
        self._values = values.reshape(*before, values.shape[self._axis] // size, size, *after)
        self._shape = values.shape
        self._out = np.empty(self._values.shape, np.float32)

    @staticmethod
    def fits(values: np.ndarray, spec: QuantSpec) -> bool:
        """Whether the short way gives the same numbers as `fake_quantize`."""
        blocks = spec.granularity
        if not isinstance(blocks, PerBlock) or not spec.evenly_spaced or spec.rounding != "half_even" or spec.bits > 16:
            return False
        whole = values.shape[resolve_axis(blocks.axis, values.ndim)] % blocks.size == 0
        return whole and values.dtype == np.float32 and bool(np.isfinite(values).all())

    def squares(self, qparams: QParams) -> np.ndarray:
        """The square of each value's error; overwritten by the next call."""
        spec, out = qparams.spec, self._out
        scale, zero_point = (np.expand_dims(one, self._axis + 1) for one in (qparams.scale, qparams.zero_point))
        with np.errstate(over="ignore", under="ignore"):
            np.divide(self._values, scale, out=out)
            np.maximum(out, (spec.qmin - zero_point).astype(np.float32), out=out)
            np.minimum(out, (spec.qmax - zero_point).astype(np.float32), out=out)
            np.rint(out, out=out)
            np.multiply(out, scale, out=out)
            np.subtract(self._values, out, out=out)
            np.square(out, out=out)
        return out.reshape(self._shape)
