"""What the matrices of a layer are multiplied with: rows [groups, rows, inputs] made of the layer's input.

A convolution multiplies its matrix with the patches of its input, one for each position of its output. A transposed
convolution is a convolution of the input with zeros between its values, with the kernel turned around. There are far
more patches than statistics need, so `rows` takes a number of them at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np


@dataclass(frozen=True)
class MatrixRows:
    """The input of Gemm and MatMul: `transposed` where its last axis but one is multiplied.

    stacked   the leading axes of a weight that is a stack of matrices, each of which has rows of its own
    """

    stacked: tuple[int, ...] = ()
    transposed: bool = False

    def rows(self, x: np.ndarray, limit: int, random: np.random.Generator) -> np.ndarray:
        """At most `limit` rows (for each matrix of the stack) of one input."""
        if x.ndim == 1:
            x = x[:, None] if self.transposed else x[None, :]
        if self.transposed:
            x = x.swapaxes(-1, -2)
        groups = prod(self.stacked)
        if groups == 1:
            flat = x.reshape(-1, x.shape[-1])
            return np.asarray(flat[None, _some(len(flat), limit, random)])
        leading = np.broadcast_shapes(x.shape[:-2], self.stacked)
        full = np.broadcast_to(x, (*leading, *x.shape[-2:]))
        own = (1,) * (len(leading) - len(self.stacked)) + self.stacked
        of_group = [axis for axis, length in enumerate(own) if length > 1]
        others = [axis for axis, length in enumerate(own) if length == 1]
        rank = len(leading)
        matrices = full.transpose(*of_group, *others, rank, rank + 1).reshape(groups, -1, x.shape[-1])
        return np.asarray(matrices[:, _some(matrices.shape[1], limit, random)])

    def sums(self, x: np.ndarray) -> tuple[np.ndarray, int]:
        """The sum of all rows, [groups, inputs] in float64, and how many rows each matrix has."""
        rows = self.rows(x, x.size, np.random.default_rng(0))
        return rows.sum(1, dtype=np.float64), rows.shape[1]


@dataclass(frozen=True)
class ConvRows:
    """The patches of a convolution; `pads` are begins, then ends, and `auto_pad` takes their place unless NOTSET.

    transposed       of a ConvTranspose, which has `output_padding`, and `output_shape` instead of pads
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int = 1
    auto_pad: str = "NOTSET"
    transposed: bool = False
    output_padding: tuple[int, ...] = ()
    output_shape: tuple[int, ...] = ()

    def rows(self, x: np.ndarray, limit: int, random: np.random.Generator) -> np.ndarray:
        """At most `limit` patches of one input [batch, channels, ...]; none of one without values."""
        if x.size == 0:
            return np.zeros((self.groups, 0, x.shape[1] // self.groups * prod(self.kernel)), x.dtype)
        padded, strides, lengths = self._ready(x)
        batch, channels, *spatial = padded.shape
        chosen = np.unravel_index(_some(batch * prod(lengths), limit, random), (batch, *lengths))
        places = self._places(chosen[1:], strides, spatial)
        patches = padded.reshape(batch, channels, -1)[chosen[0][:, None], :, places]  # [rows, kernel, channels]
        grouped = patches.transpose(0, 2, 1).reshape(len(places), self.groups, -1)
        return grouped.transpose(1, 0, 2)

    def sums(self, x: np.ndarray) -> tuple[np.ndarray, int]:
        """The sum of all patches, [groups, inputs] in float64, and how many there are; none is made on the way."""
        if x.size == 0:
            return np.zeros((self.groups, x.shape[1] // self.groups * prod(self.kernel))), 0
        padded, strides, lengths = self._ready(x)
        found = padded.sum(0, dtype=np.float64) if len(padded) > 1 else padded[0]
        for axis, (kernel, dilation, stride, length) in enumerate(
            zip(self.kernel, self.dilations, strides, lengths, strict=True), 1
        ):
            steps = range(kernel)[::-1] if self.transposed else range(kernel)
            starts = [step * dilation for step in steps]
            before = (slice(None),) * axis
            parts = [
                found[(*before, slice(start, start + (length - 1) * stride + 1, stride))].sum(axis, dtype=np.float64)
                for start in starts
            ]
            found = np.stack(parts, axis)
        return found.reshape(self.groups, -1), len(padded) * prod(lengths)

    def _ready(self, x: np.ndarray) -> tuple[np.ndarray, tuple[int, ...], list[int]]:
        """The input as an ordinary convolution with these strides reads it, and the lengths of its output."""
        if self.transposed:
            padded, strides = self._with_zeros_between(x), (1,) * len(self.kernel)
        else:
            padded, strides = _padded(x, self._pads(x.shape[2:])), self.strides
        lengths = [
            (size - extent) // stride + 1
            for size, extent, stride in zip(padded.shape[2:], self._extents(), strides, strict=True)
        ]
        return padded, strides, lengths

    def _places(self, corners: tuple[np.ndarray, ...], strides: tuple[int, ...], spatial: list[int]) -> np.ndarray:
        """[rows, kernel]: where in the flat image each weight of the kernel reads, for each chosen position."""
        places = np.zeros((len(corners[0]), 1), np.intp)
        for corner, stride, length, dilation, size in zip(
            corners, strides, self.kernel, self.dilations, spatial, strict=True
        ):
            steps = np.arange(length)[::-1] if self.transposed else np.arange(length)
            along = corner[:, None] * stride + steps * dilation
            places = (places[:, :, None] * size + along[:, None, :]).reshape(len(places), -1)
        return places

    def _extents(self) -> Iterator[int]:
        return ((length - 1) * dilation + 1 for length, dilation in zip(self.kernel, self.dilations, strict=True))

    def _pads(self, spatial: tuple[int, ...]) -> list[tuple[int, int]]:
        if self.auto_pad == "NOTSET":
            return list(zip(self.pads[: len(self.kernel)], self.pads[len(self.kernel) :], strict=True))
        if self.auto_pad == "VALID":
            return [(0, 0)] * len(self.kernel)
        pads = []
        for size, stride, extent in zip(spatial, self.strides, self._extents(), strict=True):
            total = max((-(-size // stride) - 1) * stride + extent - size, 0)
            pads.append(self._divided(total))
        return pads

    def _divided(self, total: int) -> tuple[int, int]:
        small, large = total // 2, total - total // 2
        return (small, large) if self.auto_pad == "SAME_UPPER" else (large, small)

    def _with_zeros_between(self, x: np.ndarray) -> np.ndarray:
        spatial = x.shape[2:]
        apart = [(size - 1) * stride + 1 for size, stride in zip(spatial, self.strides, strict=True)]
        wide = np.zeros((*x.shape[:2], *apart), x.dtype)
        wide[(slice(None), slice(None), *(slice(None, None, stride) for stride in self.strides))] = x
        extra = self.output_padding or (0,) * len(self.kernel)
        pads = [
            (extent - 1 - begin, extent - 1 - end + more)
            for extent, (begin, end), more in zip(self._extents(), self._cuts(spatial, extra), extra, strict=True)
        ]
        return _padded(wide, pads)

    def _cuts(self, spatial: tuple[int, ...], extra: tuple[int, ...]) -> list[tuple[int, int]]:
        """What a ConvTranspose cuts off at both ends of each axis."""
        same = self.auto_pad in ("SAME_UPPER", "SAME_LOWER")
        if not self.output_shape and not same:
            return self._pads(spatial)
        cuts = []
        for axis, (size, stride, extent) in enumerate(zip(spatial, self.strides, self._extents(), strict=True)):
            wanted = self.output_shape[axis] if self.output_shape else size * stride
            cuts.append(self._divided(stride * (size - 1) + extra[axis] + extent - wanted))
        return cuts


Rows = MatrixRows | ConvRows


def _padded(x: np.ndarray, pads: list[tuple[int, int]]) -> np.ndarray:
    """Zeros at both ends of each spatial axis; a negative number cuts values off."""
    cut = tuple(slice(max(-begin, 0), x.shape[i + 2] - max(-end, 0)) for i, (begin, end) in enumerate(pads))
    widths = [(0, 0), (0, 0), *((max(begin, 0), max(end, 0)) for begin, end in pads)]
    inner = x[(slice(None), slice(None), *cut)]
    return np.pad(inner, widths) if any(sum(width) for width in widths) else inner


def _some(count: int, limit: int, random: np.random.Generator) -> np.ndarray:
    """Numbers below `count` in order: all, or `limit` of them at random."""
    if count <= limit:
        return np.arange(count)
    return np.sort(random.choice(count, limit, replace=False, shuffle=False))
