"""How the scales of a tensor lie beside its values: one, one per channel, or one per block along an axis.

Values are split and scales are spread until the two broadcast against each other:

    per tensor      values as they are             scale ()
    per channel     values as they are             scale (1, .., C, .., 1)
    per block       (.., blocks, size, ..)         scale (.., blocks, 1, ..)

A shorter last block is filled up with zeros, which have no gradient. A format
without a scale has one scale of 1, whatever its granularity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from onnxq.errors import SpecError
from onnxq.types.granularity import PerBlock, PerChannel, PerTensor, resolve_axis
from onnxq.types.spec import QuantSpec


@dataclass(frozen=True)
class Layout:
    """Values of one shape and the scales of one format; no `axis` for a single scale, `size` is that of a block."""

    shape: tuple[int, ...]
    axis: int | None = None
    size: int | None = None

    def split(self, x: Tensor) -> Tensor:
        """The values, with an axis of its own for the members of a block."""
        if self.axis is None or self.size is None:
            return x
        missing = -self.shape[self.axis] % self.size
        if missing:
            after = len(self.shape) - 1 - self.axis
            x = functional.pad(x, [0, 0] * after + [0, missing])
        return self._by_blocks(x)

    def join(self, x: Tensor) -> Tensor:
        """The inverse of `split`."""
        if self.axis is None or self.size is None:
            return x
        joined = x.flatten(self.axis, self.axis + 1)
        return joined.narrow(self.axis, 0, self.shape[self.axis])

    def spread(self, parameter: Tensor) -> Tensor:
        """A scale or zero point in a shape that broadcasts against split values."""
        if self.axis is None:
            return parameter
        if self.size is not None:
            return parameter.unsqueeze(self.axis + 1)
        return parameter.view([-1 if i == self.axis else 1 for i in range(len(self.shape))])

    def ranges(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Minimum and maximum of the values that share a scale, in the shape of the scale."""
        if self.axis is None:
            low, high = torch.aminmax(x)
            return low, high
        # torch.aminmax along an axis is many times slower than these two.
        if self.size is not None:
            blocks = self._by_blocks(self._filled(x))
            return blocks.amin(self.axis + 1), blocks.amax(self.axis + 1)
        rows = x.movedim(self.axis, 0).reshape(self.shape[self.axis], -1)
        return rows.amin(1), rows.amax(1)

    def _by_blocks(self, x: Tensor) -> Tensor:
        """Whole blocks along the axis become an axis of blocks and one of their members."""
        assert self.axis is not None
        assert self.size is not None
        before, after = x.shape[: self.axis], x.shape[self.axis + 1 :]
        return x.reshape(*before, x.shape[self.axis] // self.size, self.size, *after)

    def _filled(self, x: Tensor) -> Tensor:
        """The values with a full last block, whose last member is repeated: its range is what it was."""
        assert self.axis is not None
        assert self.size is not None
        missing = -self.shape[self.axis] % self.size
        last = x.narrow(self.axis, self.shape[self.axis] - 1, 1)
        return torch.cat([x, last.repeat_interleave(missing, self.axis)], self.axis) if missing else x


def layout_of(shape: torch.Size | tuple[int, ...], scale: Tensor, spec: QuantSpec, tensor: str) -> Layout:
    """The layout of values of `shape`; scales of another shape than the format says are an error."""
    granularity = spec.scale_granularity
    expected = spec.scale_shape(shape)
    if tuple(scale.shape) != expected:
        raise SpecError(
            f"'{tensor}' has values of shape {tuple(shape)}, which need scales of shape {expected} when they are "
            f"quantized {granularity}; its scales have shape {tuple(scale.shape)}"
        )
    if isinstance(granularity, PerTensor):
        return Layout(tuple(shape))
    axis = resolve_axis(granularity.axis, len(shape))
    if isinstance(granularity, PerChannel):
        return Layout(tuple(shape), axis)
    assert isinstance(granularity, PerBlock)
    return Layout(tuple(shape), axis, granularity.size)
