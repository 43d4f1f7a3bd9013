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
from onnxq.numerics.compiled import pack_in_c
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
        return self._packed(self._numbers(values, fixed), self.count * self.size).reshape(self.packed_shape)

    def pack_table(self, values: np.ndarray, fixed: np.ndarray | None = None) -> np.ndarray:
        return self._packed(self._numbers(values, fixed), self.columns).reshape(self.table_shape)

    def _packed(self, numbers: np.ndarray, length: int) -> np.ndarray:
        """Rows of so many codes, the last ones 0 where a block is filled up."""
        packed = np.zeros((self.rows, length * self.bits // 8), np.uint8)
        signed = self.parameters.spec.signed
        if not pack_in_c(numbers, packed, self.bits, transposed=self.transposed, signed=signed):
            codes = self._unsigned(numbers)
            part = pack_bits(codes.T if self.transposed else codes, self.bits)
            packed[:, : part.shape[1]] = part
        return packed

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

    def _numbers(self, values: np.ndarray, fixed: np.ndarray | None) -> np.ndarray:
        """The stored numbers, in memory of their own."""
        if fixed is None:
            return quantize(values.astype(np.float32, copy=False), self.parameters)
        return np.array(fixed, np.int8 if self.parameters.spec.signed else np.uint8)

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
    columns_together = codes.ndim == 2 and codes.flags.f_contiguous and not codes.flags.c_contiguous
    if columns_together:  # rows of the turned numbers are packed as they lie, then a part of the bytes is turned
        return _turned(_packed_down(codes.T, bits) if per_byte > 1 else codes.T)
    if per_byte == 1:
        return np.ascontiguousarray(codes)
    whole = -(-codes.shape[-1] // per_byte)
    packed = np.zeros((*codes.shape[:-1], whole), np.uint8)
    for place in range(per_byte):
        part = codes[..., place::per_byte]
        packed[..., : part.shape[-1]] |= part << (place * bits)
    return packed


def _packed_down(codes: np.ndarray, bits: int) -> np.ndarray:
    """The same along the first of two axes."""
    per_byte = 8 // bits
    packed = codes[::per_byte].copy()
    for place in range(1, per_byte):
        part = codes[place::per_byte]
        packed[: len(part)] |= part << (place * bits)
    return packed


_STRIP = 16
"""Rows that are turned at a time: all at once, every number is in another line of the cache (5 to 10 times as long)."""


def _turned(rows: np.ndarray) -> np.ndarray:
    """The transposed matrix, in order in memory."""
    turned = np.empty(rows.shape[::-1], rows.dtype)
    for start in range(0, len(rows), _STRIP):
        turned[:, start : start + _STRIP] = rows[start : start + _STRIP].T
    return turned
