"""int1 .. int16, uint1 .. uint16 and int32: q = clip(round(x / scale) + zero_point, qmin, qmax).

x / scale is a division (never a product with the reciprocal), in float32: bit for bit what onnxruntime's QuantizeLinear
computes. Only int32 divides and rounds in float64, because float32 cannot hold 2^31 - 1; no runtime quantizes to int32,
biases are stored that way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from onnxq.errors import SpecError
from onnxq.numerics.rounding import quotient, round_values
from onnxq.types.granularity import PerBlock, PerTensor
from onnxq.types.number_format import NumberFormat, Operators
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec, SpecChanges

if TYPE_CHECKING:
    from torch import Tensor

_CONTAINERS = (2, 4, 8, 16, 32)
"""Bits of the integer types of ONNX."""
_OPSETS = {2: 25, 4: 21, 16: 21}
"""Bits of a container -> the opset whose QuantizeLinear has it, where that is not the first."""


@dataclass(frozen=True)
class IntegerFormat(NumberFormat):
    """Evenly spaced steps, with or without a sign and a zero point."""

    grid = "uniform"
    summary = "integer steps"
    evenly_spaced = True
    in_onnx = True

    @property
    def storage(self) -> np.dtype[Any]:
        return self._storage

    @cached_property
    def _storage(self) -> np.dtype[Any]:
        return np.dtype(f"{self._sign}int{max(8, self.stored_bits)}")

    @property
    def _sign(self) -> str:
        return "" if self.signed else "u"

    @cached_property
    def _integers(self) -> tuple[int, int]:
        half = 1 << (self.bits - 1)
        return (-half, half - 1) if self.signed else (0, 2 * half - 1)

    @property
    def integers(self) -> tuple[int, int]:
        return self._integers

    def encode(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return self._rounded(x, scale, zero_point, spec).astype(self.storage)

    def _rounded(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        """The stored numbers, as floats that hold every one of them."""
        work = np.dtype(np.float64 if self.bias_only else np.float32)
        ratio = quotient(x, scale, work)
        # The bounds are integers, so limiting before rounding gives the same numbers and keeps infinities out of it.
        np.clip(ratio, (spec.qmin - zero_point).astype(work), (spec.qmax - zero_point).astype(work), out=ratio)
        rounded = round_values(ratio, spec.rounding)
        rounded += zero_point.astype(work)  # no zero is negative after this
        return rounded

    def decode(self, q: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        steps = np.asarray(q).astype(np.int32) - zero_point
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(steps.astype(np.float32) * scale)

    def fake(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        if self.bias_only:  # float32 does not hold all of its integers
            return super().fake(x, scale, zero_point, spec)
        steps = self._rounded(x, scale, zero_point, spec)
        steps -= zero_point.astype(np.float32)
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(steps * scale)

    def ends(self, spec: QuantSpec, *, rounded: bool = False) -> tuple[float, float]:
        return (spec.qmin - 0.5, spec.qmax + 0.5) if rounded else (spec.qmin, spec.qmax)

    # ---- what a spec may say ----------------------------------------------------------------------------------------

    def check(self, spec: QuantSpec) -> None:
        low, high = self.integers
        if spec.narrow_range:
            if spec.quant_min is not None:
                raise SpecError("give either narrow_range or an explicit quant_min, not both")
            if not self.signed or self.bits < 2:
                raise SpecError(
                    f"narrow_range drops the lowest value of a signed format of 2 bits or more, not of {self.name}"
                )
            low += 1
        qmin = low if spec.quant_min is None else spec.quant_min
        qmax = high if spec.quant_max is None else spec.quant_max
        if not low <= qmin < qmax <= high:
            raise SpecError(
                f"quant_min {qmin} and quant_max {qmax} must be in order and inside {self.name} [{low}, {high}]"
            )
        if not qmin <= 0 <= qmax:
            raise SpecError(f"the range [{qmin}, {qmax}] has no zero: real 0 could not be represented")
        if spec.signed_scale and (spec.power_of_two or not spec.symmetric or qmin >= 0):
            raise SpecError("scales of either sign are for symmetric formats with a sign, and for no powers of two")
        if self.bias_only and not spec.symmetric:
            raise SpecError(f"{self.name} is for biases, which are symmetric (zero point 0)")

    def check_parameters(self, spec: QuantSpec, scale: np.ndarray, zero_point: np.ndarray) -> None:
        if spec.symmetric:
            return  # they are 0
        if zero_point.min() < spec.qmin or zero_point.max() > spec.qmax:
            raise SpecError(f"zero points must lie in [{spec.qmin}, {spec.qmax}]")

    def implied(self, held: QuantSpec) -> SpecChanges:
        fields: SpecChanges = {}
        if isinstance(held.granularity, PerBlock) and not held.evenly_spaced:
            fields["granularity"] = PerTensor()
        if not self.signed or self.bits < 2:
            fields["narrow_range"] = False
        if self.bias_only:
            fields |= {"symmetric": True, "power_of_two": False, "rounding": "half_even"}
        return fields

    def with_bits(self, bits: int) -> str:
        return f"{self._sign}int{bits}"

    @property
    def unsigned(self) -> str | None:
        return f"u{self.name}" if self.signed else None

    # ---- in files ---------------------------------------------------------------------------------------------------

    @property
    def stored_bits(self) -> int:
        return next(bits for bits in _CONTAINERS if self.bits <= bits)

    @property
    def onnx_type(self) -> str:
        return f"{self._sign}int{self.stored_bits}"

    @property
    def onnx_storage(self) -> np.dtype[Any]:
        return np.dtype(getattr(ml_dtypes, self.onnx_type) if self.stored_bits < 8 else self.onnx_type)

    @property
    def opset(self) -> int:
        return _OPSETS.get(self.stored_bits, 10)

    def operators(self, ops: Operators, parameters: QParams) -> Any:
        """x / scale, limited to [qmin - zero_point, qmax - zero_point], rounded, times scale.

        Limiting comes before rounding, as in `encode`: halves are then told exactly from their neighbours.
        """
        spec = parameters.spec
        zero_point = parameters.zero_point.astype(np.float32)
        scale = ops.constant("scale", ops.spread(parameters.scale, parameters))
        low = ops.constant("low", ops.spread(np.float32(spec.qmin) - zero_point, parameters))
        high = ops.constant("high", ops.spread(np.float32(spec.qmax) - zero_point, parameters))
        x = ops.cast(ops.source, np.dtype(np.float32))
        steps = ops.add("Div", [x, scale])
        steps = ops.add("Min", [ops.add("Max", [steps, low]), high])  # Clip takes single numbers only
        # Adding zero turns -0 into +0, which is what integers have.
        rounded = ops.add("Add", [_rounded(ops, steps, spec.rounding), ops.constant("zero", np.float32(0.0))])
        return ops.cast(ops.add("Mul", [rounded, scale]), ops.kind)

    # ---- in torch ---------------------------------------------------------------------------------------------------

    def torch_values(self, x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
        """torch.fake_quantize_per_tensor_affine multiplies with 1 / scale, which differs at ties.

        It is also several times slower on a CPU than these four operations in place.
        """
        from onnxq.numerics.in_torch import affine_ratio, affine_values, round_in_place

        if self.bias_only:
            ratio = (x.double() / scale.double()).clamp_(spec.qmin, spec.qmax)
            return affine_values(round_in_place(ratio, spec.rounding).float(), scale)
        return affine_values(round_in_place(affine_ratio(x, scale, zero_point, spec), spec.rounding), scale)


def _rounded(ops: Operators, x: Any, rounding: str) -> Any:
    if rounding == "half_even":
        return ops.add("Round", [x])
    if rounding == "floor":
        return ops.add("Floor", [x])
    if rounding == "half_up":
        return _nearest(ops, x, "GreaterOrEqual")
    # Away from zero and towards it: the same on both sides of zero.
    size = _nearest(ops, ops.add("Abs", [x]), "GreaterOrEqual" if rounding == "half_away" else "Greater")
    return ops.add("Mul", [ops.add("Sign", [x]), size])


def _nearest(ops: Operators, x: Any, comparison: str) -> Any:
    """floor(x), plus 1 where the rest is above (or at) a half; x - floor(x) is exact."""
    floor = ops.add("Floor", [x])
    rest = ops.add("Sub", [x, floor])
    up = ops.add(comparison, [rest, ops.constant("half", np.float32(0.5))], np.dtype(bool))
    return ops.add("Add", [floor, ops.cast(up, np.dtype(np.float32))])


FORMATS = (
    *(IntegerFormat(f"int{bits}", bits) for bits in range(1, 17)),
    *(IntegerFormat(f"uint{bits}", bits, signed=False) for bits in range(1, 17)),
    IntegerFormat("int32", 32, bias_only=True),
)
