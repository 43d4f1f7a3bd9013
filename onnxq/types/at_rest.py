"""AtRest: how constants of a format that shares scales in blocks lie in files, as codes and scales of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class AtRest:
    """What a file holds for a constant: real = value of the code * scale of its block.

    code_type   the type of codes in a file that onnxruntime runs; those of four bits are positions in `table`
    table       the values of codes, float32, where they are positions; None where DequantizeLinear knows the type
    own_type    the type that ONNX has for the numbers themselves, which onnxruntime may not run; None if there is none
    scale_type  the type of the scales of blocks
    unit        what DequantizeLinear multiplies a code with, in units of the scale
    two_level   the scales of blocks have a scale in common: a power of two, so that every product is exact
    opset       the lowest opset whose operators run in onnxruntime can say it
    own_opset   the lowest opset that has `own_type`, and DequantizeLinear for it
    """

    code_type: np.dtype[Any]
    scale_type: np.dtype[Any]
    opset: int
    table: np.ndarray | None = None
    own_type: np.dtype[Any] | None = None
    own_opset: int = 24
    unit: float = 1.0
    two_level: bool = False

    def codes(self, stored: np.ndarray) -> np.ndarray:
        """What a file that onnxruntime runs holds for stored numbers."""
        if self.table is not None:
            return np.asarray(stored.view(np.uint8).astype(self.code_type))
        return stored if stored.dtype == self.code_type else stored.astype(np.float32).astype(self.code_type)

    def scales(self, scale: np.ndarray) -> tuple[np.ndarray, float]:
        """The scales of the blocks in their type, and the number that all of them are multiplied with."""
        common = self.common_scale(scale) if self.two_level else 1.0
        return (scale * np.float32(self.unit) / np.float32(common)).astype(self.scale_type), common

    def common_scale(self, scale: np.ndarray) -> float:
        """The power of two in units of which the largest scale lies within the upper half of an E4M3's range."""
        mantissa, exponent = np.frexp(np.float64(scale.max()))
        return float(np.ldexp(1.0, int(exponent) - (9 if mantissa <= E4M3_LARGEST / 512 else 8)))


E4M3_LARGEST = 448.0
