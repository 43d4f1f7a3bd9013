"""The weight of a layer as a stack of matrices [groups, outputs, inputs], so that algorithms need to know no operator.

    Conv [O, I / g, k...]            [g, O / g, I / g * k]
    ConvTranspose [I, O / g, k...]   [g, O / g, I / g * k]
    Gemm [N, K] (transB), [K, N]     [1, N, K]
    MatMul x W [..., K, N]           [stacked, N, K]
    MatMul W [..., M, K] x           [stacked, M, K]

A row of a matrix makes one output channel. What it is multiplied with is in `onnxq.ptq.weights.rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np


@dataclass(frozen=True)
class MatrixView:
    """Axes of a weight: split into `split`, brought into `order`, joined to `matrices`."""

    shape: tuple[int, ...]
    split: tuple[int, ...]
    order: tuple[int, ...]
    matrices: tuple[int, int, int]

    def unfold(self, weight: np.ndarray) -> np.ndarray:
        """[groups, outputs, inputs]."""
        return weight.reshape(self.split).transpose(self.order).reshape(self.matrices)

    def fold(self, matrices: np.ndarray) -> np.ndarray:
        """The weight in its own shape again."""
        split = matrices.reshape([self.split[axis] for axis in self.order])
        return np.ascontiguousarray(split.transpose(np.argsort(self.order)).reshape(self.shape))


def view_of_conv(shape: tuple[int, ...], groups: int) -> MatrixView:
    matrices = (groups, shape[0] // groups, prod(shape[1:]))
    return MatrixView(shape, matrices, (0, 1, 2), matrices)


def view_of_conv_transpose(shape: tuple[int, ...], groups: int) -> MatrixView:
    split = (groups, shape[0] // groups, shape[1], prod(shape[2:]))
    return MatrixView(shape, split, (0, 2, 1, 3), (groups, split[2], split[1] * split[3]))


def view_of_rows(shape: tuple[int, ...]) -> MatrixView:
    """The last axis is multiplied: [..., outputs, inputs]."""
    matrices = (prod(shape[:-2]), shape[-2], shape[-1])
    return MatrixView(shape, matrices, (0, 1, 2), matrices)


def view_of_columns(shape: tuple[int, ...]) -> MatrixView:
    """The last axis but one is multiplied: [..., inputs, outputs]."""
    split = (prod(shape[:-2]), shape[-2], shape[-1])
    return MatrixView(shape, split, (0, 2, 1), (split[0], split[2], split[1]))
