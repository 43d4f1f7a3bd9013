"""NF4 weights as onnxruntime's MatMulBnb4 holds them: two codes to a byte, a largest magnitude for every block.

    MatMul(x, W), Gemm(x, W, C)  ->  MatMulBnb4(x, codes, scales), Add(C)

A weight [K, N] lies there as [N, K], row after row without gaps: codes uint8 [N * K / 2], the first of two in the upper
half of a byte, and scales float32 [N * K / size]. Blocks run on from row to row, so that K must be a multiple of their
size, which is a power of two from 16 on. The layout is that of the operator's description in onnxruntime.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxq.numerics import quantize
from onnxq.types import PerBlock, QParams, QuantSpec

NF4_OF_BNB4 = 1
"""The value of the operator's attribute quant_type."""


def is_in_bnb4(spec: QuantSpec) -> bool:
    """Whether MatMulBnb4 has the numbers of a format: positions in a table that has no type in ONNX."""
    held = spec.format.at_rest
    return held is not None and held.table is not None and held.own_type is None


@dataclass(frozen=True)
class Bnb4Blocks:
    """How the weight `shape` is packed; its blocks lie along axis 0 ([K, N]) or 1 ([N, K])."""

    shape: tuple[int, int]
    parameters: QParams

    @cached_property
    def size(self) -> int:
        granularity = self.parameters.spec.granularity
        assert isinstance(granularity, PerBlock)
        return granularity.size

    @cached_property
    def transposed(self) -> bool:
        """Whether the weight lies there as [K, N]."""
        granularity = self.parameters.spec.granularity
        assert isinstance(granularity, PerBlock)
        return granularity.axis % 2 == 0

    @property
    def rows(self) -> int:
        return self.shape[1] if self.transposed else self.shape[0]

    @property
    def columns(self) -> int:
        return self.shape[0] if self.transposed else self.shape[1]

    @property
    def packed_shape(self) -> tuple[int]:
        return (self.rows * self.columns // 2,)

    def why_not(self) -> str | None:
        """Why the operator cannot hold the weight."""
        if self.columns % self.size:
            return f"its rows of {self.columns} weights are no whole blocks of {self.size}, as MatMulBnb4 needs them"
        return None

    def pack(self, values: np.ndarray) -> np.ndarray:
        """The codes of the weight's real values."""
        codes = quantize(values.astype(np.float32, copy=False), self.parameters)
        flat = np.ascontiguousarray(codes.T if self.transposed else codes).reshape(-1)
        return np.asarray(flat[0::2] << 4 | flat[1::2], np.uint8)

    def scales(self) -> np.ndarray:
        scale = self.parameters.scale
        return np.ascontiguousarray(scale.T if self.transposed else scale).reshape(-1)
