"""The MX formats of the OCP Microscaling Formats specification 1.0: 32 values share a power of two.

    format       elements   bits of a value with its share of the scale
    mxfp8_e4m3   e4m3       8.25
    mxfp8_e5m2   e5m2       8.25
    mxfp6_e3m2   e3m2       6.25
    mxfp6_e2m3   e2m3       6.25
    mxfp4        e2m1       4.25
    mxint8       int8       8.25

The scale is an E8M0 number: 2^-127 .. 2^127. With m the largest finite magnitude of a block and 2^e <= m < 2^(e+1), it
is 2^(e - emax), where a `scale_rule` may take e + 1 for the largest values of m:

    floor   never: what the specification says; up to a quarter of the largest value is cut off
    even    m >= 2^e * (2 - 2^-(f+1)): where m, rounded to the f bits of the element, is 2^(e+1) (AMD's Quark)
    ceil    m > largest element * 2^(e - emax): nothing saturates (NVIDIA's ModelOpt)

No scale is so large that an element times the scale is infinite. A block of zeros has the smallest scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from onnxq.numerics.formats.block_scaled import BlockScaled
from onnxq.numerics.formats.blocks import narrowed, power_below
from onnxq.numerics.formats.elements import E2M1, E2M3, E3M2, E4M3, E5M2, FIXED8
from onnxq.types.at_rest import AtRest
from onnxq.types.number_format import Operators
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec

if TYPE_CHECKING:
    from torch import Tensor

LOWEST_EXPONENT, HIGHEST_EXPONENT = -127, 127
_SMALLEST_CALIBRATED = -126
"""Calibrated scales are normal float32 numbers."""


@dataclass(frozen=True)
class Mx(BlockScaled):
    """Scales are powers of two, so that dividing by them and multiplying with them is exact."""

    any_scale = False
    scale_rules = ("floor", "even", "ceil")
    range_factors = (2.0, 0.5)
    scales = "powers of two"

    # ---- scales -----------------------------------------------------------------------------------------------------

    def scale_exponents(self, largest: np.ndarray, spec: QuantSpec) -> np.ndarray:
        """log2 of the scale of blocks with these largest magnitudes, which are finite."""
        mantissa, exponent = np.frexp(np.asarray(largest, np.float32))
        border, strict = self._border(spec)
        twice = mantissa * np.float32(2)
        exponent = exponent - 1 + (twice > border if strict else twice >= border)
        limited = np.clip(exponent - self.element.emax, LOWEST_EXPONENT, HIGHEST_EXPONENT - self.element.emax)
        return np.asarray(np.where(largest == 0, LOWEST_EXPONENT, limited))

    def _border(self, spec: QuantSpec) -> tuple[float, bool]:
        """From which part of 2^e on (or beyond it, if the second is true) the exponent is one higher."""
        if spec.scale_rule == "even":
            return 2.0 - 2.0 ** -(self.element.fraction + 1), False
        if spec.scale_rule == "ceil":
            return self.element.largest / 2.0**self.element.emax, True
        return 2.0, False

    def block_scales(self, largest: np.ndarray, scale: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return np.asarray(np.ldexp(np.float32(1), self.scale_exponents(largest, spec)))

    def torch_block_scales(self, largest: Tensor, scale: Tensor, spec: QuantSpec) -> Tensor:
        import torch

        from onnxq.numerics.in_torch import power_of_two

        mantissa, exponent = torch.frexp(largest)
        border, strict = self._border(spec)
        twice = mantissa * 2
        exponent = exponent - 1 + (twice > border if strict else twice >= border).to(exponent.dtype)
        limited = (exponent - self.element.emax).clamp_(LOWEST_EXPONENT, HIGHEST_EXPONENT - self.element.emax)
        return power_of_two(limited.masked_fill_(largest == 0, LOWEST_EXPONENT))

    def block_scale_operators(self, to: Operators, largest: Any, parameters: QParams) -> Any:
        half_power = power_below(to, largest)
        border, strict = self._border(parameters.spec)
        if border < 2:
            power = to.add("Mul", [half_power, to.constant("border", np.float64(2 * border))], shaped=False)
            wide = to.add("Cast", [largest], np.dtype(np.float64), {"to": np.dtype(np.float64)}, shaped=False)
            higher = to.add("Greater" if strict else "GreaterOrEqual", [wide, power], np.dtype(bool), shaped=False)
            doubled = to.add("Add", [half_power, half_power], shaped=False)
            half_power = to.add("Where", [higher, doubled, half_power], half_power.dtype, shaped=False)
        low, high = 2.0 ** (LOWEST_EXPONENT - 1 + self.element.emax), 2.0 ** (HIGHEST_EXPONENT - 1)
        bounded = to.add("Max", [half_power, to.constant("least", np.float64(low))], shaped=False)
        bounded = to.add("Min", [bounded, to.constant("most", np.float64(high))], shaped=False)
        unit = to.constant("emax", np.float64(2.0 ** (1 - self.element.emax)))
        return narrowed(to, to.add("Mul", [bounded, unit], shaped=False))

    # ---- calibrated scales ------------------------------------------------------------------------------------------

    def scaled(self, spec: QuantSpec) -> bool:
        return not spec.dynamic

    def scale_for(self, scale: np.ndarray, spec: QuantSpec) -> np.ndarray:
        # The range in float32, where the values come from: x / largest * largest may lie next to a power of two.
        with np.errstate(over="ignore"):
            largest = (np.asarray(scale, np.float64) * self.element.largest).astype(np.float32)
        largest = np.minimum(largest, np.finfo(np.float32).max)
        exponents = np.maximum(self.scale_exponents(largest, spec), _SMALLEST_CALIBRATED)
        return np.asarray(np.ldexp(1.0, exponents))

    def legal_scale(self, scale: np.ndarray, *, up: bool = False) -> np.ndarray:
        mantissa, exponent = np.frexp(np.asarray(scale, np.float64))
        exponent = exponent - (mantissa == 0.5 if up else mantissa < 0.5**0.5)
        return np.asarray(np.ldexp(1.0, np.clip(exponent, _SMALLEST_CALIBRATED, HIGHEST_EXPONENT - self.element.emax)))

    # ---- in files ---------------------------------------------------------------------------------------------------

    @property
    def at_rest(self) -> AtRest:
        e8m0, element = np.dtype(ml_dtypes.float8_e8m0fnu), self.element
        if element.bits == 4:
            table = element.decode(np.arange(16, dtype=np.uint8).view(element.storage))
            return AtRest(np.dtype(ml_dtypes.uint4), e8m0, 24, table, element.storage)
        if element.storage == np.int8:
            return AtRest(element.storage, e8m0, 24, own_type=element.storage, unit=2.0**-6)
        # ONNX has 6-bit types from opset 28 on; every number of theirs is one of E4M3.
        stored = element.storage if element.bits == 8 else np.dtype(ml_dtypes.float8_e4m3fn)
        return AtRest(stored, e8m0, 24, own_type=stored)


FORMATS = (
    Mx("mxfp8_e4m3", 8, element=E4M3),
    Mx("mxfp8_e5m2", 8, element=E5M2),
    Mx("mxfp6_e3m2", 6, element=E3M2),
    Mx("mxfp6_e2m3", 6, element=E2M3),
    Mx("mxfp4", 4, element=E2M1),
    Mx("mxint8", 8, element=FIXED8),
)
