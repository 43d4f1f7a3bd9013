"""Floating-point formats: fp8 (both OCP formats), fp16 and bf16, rounded half to even and saturated.

    format     largest    smallest normal   onnx type
    fp8_e4m3   448        2^-6              FLOAT8E4M3FN (no infinities)
    fp8_e5m2   57344      2^-14             FLOAT8E5M2
    fp16       65504      2^-14             FLOAT16
    bf16       3.39e38    2^-126            BFLOAT16

Values beyond the largest, infinities included, become the largest, as QuantizeLinear with saturate=1 does in
onnxruntime. NaN stays NaN: every one of these formats has it. fp16 and bf16 have no scale; QuantizeLinear lacks them,
and a pair of Casts says them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from onnxq.errors import SpecError
from onnxq.numerics.rounding import quotient
from onnxq.types.granularity import PerTensor
from onnxq.types.number_format import NumberFormat, Operators, Side, nearest_levels
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FloatFormat(NumberFormat):
    """x / scale is rounded to the nearest member.

    stored_type  the name of its type in ml_dtypes or numpy, and in torch; without underscores it is that in ONNX
    largest      the largest finite member
    saturated    magnitudes from here on saturate instead of being rounded to the largest
    """

    stored_type: str = ""
    largest: float = 0.0
    saturated: float = 0.0

    grid = "floating-point"
    summary = "floating point"
    has_nan = True

    @property
    def storage(self) -> np.dtype[Any]:
        return np.dtype(getattr(ml_dtypes, self.stored_type, self.stored_type))

    def encode(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return self.rounded(quotient(x, scale))

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """The nearest members of the format, saturated, in its numpy dtype."""
        largest = np.float32(self.largest)
        limited = np.clip(np.asarray(x, dtype=np.float32), -largest, largest)
        return np.asarray(limited.astype(self.storage))

    def decode(self, q: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.asarray(q).astype(np.float32) * scale)

    def ends(self, spec: QuantSpec, *, rounded: bool = False) -> tuple[float, float]:
        end = self.saturated if rounded else self.largest
        return -end, end

    def sides(self, spec: QuantSpec) -> tuple[Side, Side]:
        patterns = np.arange(1 << self.bits, dtype=np.dtype(f"u{self.bits // 8}"))
        numbers = patterns.view(self.storage).astype(np.float64)
        side = nearest_levels(numbers[np.isfinite(numbers) & (numbers > 0)])
        return side, side

    @property
    def onnx_type(self) -> str:
        return self.stored_type.replace("_", "")

    def torch_values(self, x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
        import torch

        limited = (x / scale).clamp_(-self.largest, self.largest)
        return limited.to(getattr(torch, self.stored_type)).float().mul_(scale)


@dataclass(frozen=True)
class Float8(FloatFormat):
    """8 bits with a scale, for which QuantizeLinear is the only operator that rounds and saturates as it should."""

    in_onnx = True
    in_operators = False
    guarded = True

    @property
    def opset(self) -> int:
        return 19


@dataclass(frozen=True)
class Half(FloatFormat):
    """16 bits without a scale."""

    has_scale: bool = False

    def check(self, spec: QuantSpec) -> None:
        super().check(spec)
        if not isinstance(spec.granularity, PerTensor):
            raise SpecError(f"{self.name} needs no scale, so its granularity is per tensor")

    def operators(self, ops: Operators, parameters: QParams) -> Any:
        """A Cast to the narrow type and back; a Clip first, because Cast gives infinity where the format saturates."""
        bounds = [
            ops.constant(side, np.asarray(v, ops.kind)) for side, v in (("low", -self.largest), ("high", self.largest))
        ]
        clipped = ops.add("Clip", [ops.source, *bounds], made="clipped")
        small = ops.add("Cast", [clipped], self.storage, {"to": self.storage}, node="narrow", made="narrow")
        return ops.add("Cast", [small], ops.kind, {"to": ops.kind}, node="widen", made="widened")


FORMATS = (
    Float8("fp8_e4m3", 8, stored_type="float8_e4m3fn", largest=448.0, saturated=464.0),
    Float8("fp8_e5m2", 8, stored_type="float8_e5m2", largest=57344.0, saturated=61440.0),
    Half("fp16", 16, stored_type="float16", largest=65504.0, saturated=65520.0),
    Half("bf16", 16, stored_type="bfloat16", largest=(2 - 2**-7) * 2.0**127, saturated=(2 - 2**-8) * 2.0**127),
)
