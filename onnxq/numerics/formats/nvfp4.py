"""NVFP4: 16 values of E2M1 (0, 0.5, 1, 1.5, 2, 3, 4, 6) share an E4M3 number, and a tensor has a scale above these.

    scale of a block = e4m3 number of the block * scale of the tensor              both float32, their product too
    real             = e2m1 number * scale of the block

A tensor that is computed at run time has a calibrated scale s, range / (6 * 448), and with m the largest finite
magnitude of a block

    e4m3 number = round to E4M3 (m / (6 s)), between 2^-9 and 448

as TensorRT's TRT_FP4DynamicQuantize and NVIDIA's ModelOpt have it. A weight has the scale of the tensor as a power of
two: then the scale of a block is a number of 4 significant bits, the products are exact in whatever order a runtime
multiplies, and a scale can be judged for itself. That costs nothing, because E4M3 numbers are equally dense everywhere.
Blocks 2^14 times smaller than the largest one get the smallest normal E4M3 number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from onnxq.numerics.formats.block_scaled import BlockScaled
from onnxq.numerics.formats.elements import E2M1, E4M3
from onnxq.types.at_rest import AtRest
from onnxq.types.granularity import PerBlock
from onnxq.types.number_format import Operators, Side, nearest_levels
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST = 2.0**-9
"""The smallest E4M3 number above zero."""
SMALLEST_NORMAL = 2.0**-6
SIGNIFICANT_BITS = 4


@dataclass(frozen=True)
class Nvfp4(BlockScaled):
    """Scales of two levels."""

    any_scale = False
    scales = "numbers of 4 significant bits"

    # ---- scales of the run ------------------------------------------------------------------------------------------

    def _unit(self, scale: np.ndarray) -> np.float32:
        return np.float32(np.float32(self.element.largest) * np.float32(scale))

    def block_scales(self, largest: np.ndarray, scale: np.ndarray, spec: QuantSpec) -> np.ndarray:
        with np.errstate(over="ignore"):
            ratio = np.asarray(largest, np.float32) / self._unit(scale)
        limited = np.clip(ratio, np.float32(SMALLEST), np.float32(E4M3.largest))
        return np.asarray(E4M3.decode(E4M3.encode(limited)) * np.float32(scale))

    def torch_block_scales(self, largest: Tensor, scale: Tensor, spec: QuantSpec) -> Tensor:
        ratio = largest / (scale * self.element.largest)
        return E4M3.rounded(ratio.clamp_(SMALLEST, E4M3.largest)).mul_(scale)

    def block_scale_operators(self, to: Operators, largest: Any, parameters: QParams) -> Any:
        scale = to.constant("tensor_scale", np.float32(parameters.scale))
        ratio = to.add("Div", [largest, to.constant("unit", self._unit(parameters.scale))], shaped=False)
        least = to.add("Max", [ratio, to.constant("smallest", np.float32(SMALLEST))], shaped=False)
        return to.add("Mul", [E4M3.operators(to, least), scale], shaped=False)

    def ends(self, spec: QuantSpec, *, rounded: bool = False) -> tuple[float, float]:
        if not spec.dynamic:
            return super().ends(spec, rounded=rounded)
        end = (self.element.saturated if rounded else self.element.largest) * E4M3.largest
        return -end, end

    def sides(self, spec: QuantSpec) -> tuple[Side, Side]:
        if not spec.dynamic:
            return super().sides(spec)
        side = nearest_levels(self.element.largest * E4M3.numbers[E4M3.numbers > 0])
        return side, side

    # ---- calibrated scales ------------------------------------------------------------------------------------------

    def scale_for(self, scale: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return scale if spec.dynamic else self.legal_scale(scale)

    def legal_scale(self, scale: np.ndarray, *, up: bool = False) -> np.ndarray:
        mantissa, exponent = np.frexp(np.asarray(scale, np.float64))
        whole = mantissa * 2.0**SIGNIFICANT_BITS
        rounded = np.ceil(whole) if up else np.rint(whole)
        return np.asarray(np.ldexp(rounded, exponent - SIGNIFICANT_BITS))

    def settled(self, scale: np.ndarray, spec: QuantSpec) -> np.ndarray:
        if spec.dynamic or not isinstance(spec.granularity, PerBlock) or not np.isfinite(scale).all():
            return scale
        return np.asarray(np.maximum(scale, np.float32(self.at_rest.common_scale(scale) * SMALLEST_NORMAL)))

    # ---- in files ---------------------------------------------------------------------------------------------------

    @property
    def at_rest(self) -> AtRest:
        e4m3 = np.dtype(ml_dtypes.float8_e4m3fn)
        table = E2M1.decode(np.arange(16, dtype=np.uint8).view(E2M1.storage))
        return AtRest(np.dtype(ml_dtypes.uint4), e4m3, 21, table, E2M1.storage, own_opset=23, two_level=True)


NVFP4 = Nvfp4("nvfp4", 4, element=E2M1, block=16)
