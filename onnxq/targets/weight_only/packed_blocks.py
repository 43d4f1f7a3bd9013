"""Weights as onnxruntime's MatMulNBits and GatherBlockQuantized hold them: rows of blocks, several numbers to a byte.

A weight [N, K] (N outputs, K inputs) in blocks of S becomes

    codes        uint8 [N, ceil(K / S), S * bits / 8]      the last block is filled up
    scales       float [N, ceil(K / S)]
    zero points  uint8 [N, ceil(ceil(K / S) * bits / 8)]   packed like the codes; left out where all are 2^(bits - 1)

The lowest bits of a byte come first. Codes are unsigned: a signed number q becomes q + 2^(bits - 1), and so does its
zero point, so real values stay (code - zero) * scale. The layout is that of the operators' description in onnxruntime
(ContribOperators).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxq.numerics import quantize
from onnxq.types import PerBlock, QParams


@dataclass(frozen=True)
class PackedBlocks:
    """How the weight `shape` with these parameters is packed; blocks lie along axis 0 ([K, N]) or 1 ([N, K])."""

    shape: tuple[int, int]
    parameters: QParams

    @cached_property
    def blocks(self) -> PerBlock:
        granularity = self.parameters.spec.granularity
        assert isinstance(granularity, PerBlock)
        return granularity

    @cached_property
    def transposed(self) -> bool:
        """Whether the weight lies there as [K, N]."""
        return self.blocks.axis % 2 == 0

    @property
    def rows(self) -> int:
        return self.shape[1] if self.transposed else self.shape[0]

    @property
    def columns(self) -> int:
        return self.shape[0] if self.transposed else self.shape[1]

    @property
    def size(self) -> int:
        return self.blocks.size

    @property
    def count(self) -> int:
        """Blocks in a row."""
        return -(-self.columns // self.size)

    @cached_property
    def bits(self) -> int:
        return self.parameters.spec.format.stored_bits

    @property
    def packed_shape(self) -> tuple[int, int, int]:
        return self.rows, self.count, self.size * self.bits // 8

    @property
    def table_shape(self) -> tuple[int, int]:
        """Rows without what fills up the last block, as GatherBlockQuantized wants them."""
        return self.rows, self.columns * self.bits // 8

    def pack(self, values: np.ndarray, fixed: np.ndarray | None = None) -> np.ndarray:
        """The packed codes of the weight's real values, or of the integers that somebody has `fixed`."""
        codes = self._codes(values, fixed)
        if codes.shape[1] < self.count * self.size:
            filled = np.zeros((self.rows, self.count * self.size), np.uint8)
            filled[:, : self.columns] = codes
            codes = filled
        return pack_bits(codes, self.bits).reshape(self.packed_shape)

    def pack_table(self, values: np.ndarray, fixed: np.ndarray | None = None) -> np.ndarray:
        return pack_bits(self._codes(values, fixed), self.bits).reshape(self.table_shape)

    def scales(self) -> np.ndarray:
        scale = self.parameters.scale
        return np.ascontiguousarray(scale.T) if self.transposed else scale

    def zero_points(self) -> np.ndarray | None:
        """Packed zero points; None where all of them are what operators assume without any."""
        spec = self.parameters.spec
        if spec.symmetric and spec.signed:
            return None
        zeros = self._unsigned(self.parameters.zero_point.astype(np.int8 if spec.signed else np.uint8))
        return pack_bits(zeros.T if self.transposed else zeros, self.bits)

    def _codes(self, values: np.ndarray, fixed: np.ndarray | None) -> np.ndarray:
        signed = self.parameters.spec.signed
        if fixed is None:
            numbers = quantize(values.astype(np.float32, copy=False), self.parameters)
        else:
            numbers = np.array(fixed, np.int8 if signed else np.uint8)
        codes = self._unsigned(numbers)
        return codes.T if self.transposed else codes

    def _unsigned(self, numbers: np.ndarray) -> np.ndarray:
        """The code of each number, in the same memory: adding 2^(bits - 1) turns the highest of its bits round."""
        codes = numbers.view(np.uint8)
        if self.parameters.spec.signed:
            codes &= (1 << self.bits) - 1
            codes ^= 1 << (self.bits - 1)
        return codes


def pack_bits(codes: np.ndarray, bits: int) -> np.ndarray:
    """Numbers below 2^bits side by side in bytes along the last axis, which is filled up with zeros to whole bytes."""
    per_byte = 8 // bits
    if per_byte == 1:
        return np.ascontiguousarray(codes)
    whole = -(-codes.shape[-1] // per_byte)
    packed = np.zeros((*codes.shape[:-1], whole), np.uint8)
    for place in range(per_byte):
        part = codes[..., place::per_byte]
        packed[..., : part.shape[-1]] |= part << (place * bits)
    return packed
