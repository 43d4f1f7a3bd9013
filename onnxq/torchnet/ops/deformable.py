"""DeformConv: a convolution whose windows take their values at places that a tensor of offsets moves.

Value of tap k of window o: x at o * stride - pad + k * dilation + offset, linear between the pixels, 0 outside, times
the mask. Dai et al. 2017, Zhu et al. 2018 (masks).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.taps import linear_taps, sample
from onnxq.torchnet.ops.windows import Windows, for_rank, read_windows
from onnxq.torchnet.registry import Kernel, op


@op("DeformConv", since=19)
def deform_conv(call: Call) -> Kernel:
    return for_rank(call, lambda spatial: _deform_conv(call, spatial))


def _deform_conv(call: Call, spatial: int) -> Kernel:
    windows = read_windows(call, spatial)
    groups, parts = int(call.attribute("group", 1)), int(call.attribute("offset_group", 1))

    def run(
        x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        kernel, sizes, places = weight.shape[2:], x.shape[2:], offset.shape[2:]
        taps, batch, channels = math.prod(kernel), x.shape[0], x.shape[1]
        moved = offset.reshape(batch * parts, taps, spatial, math.prod(places))
        positions = moved + _resting(windows, kernel, places, offset)
        sampled = _sample(x.reshape(batch * parts, channels // parts, *sizes), positions)
        if mask is not None:
            sampled = sampled * mask.reshape(batch * parts, 1, taps, -1)
        columns = sampled.reshape(batch, groups, channels // groups * taps, -1)
        y = weight.reshape(groups, weight.shape[0] // groups, -1) @ columns
        y = y.reshape(batch, weight.shape[0], *places)
        return y if bias is None else y + bias.reshape(-1, *[1] * spatial)

    return run


def _resting(windows: Windows, kernel: tuple[int, ...], places: tuple[int, ...], like: Tensor) -> Tensor:
    """Where the taps are without offsets: [taps, axes, windows]."""
    grids = []
    axes = len(kernel)
    for axis in range(axes):
        step, gap, begin = windows.strides[axis], windows.dilations[axis], windows.explicit[axis][0]
        taps = torch.arange(kernel[axis], device=like.device) * gap
        corners = torch.arange(places[axis], device=like.device) * step - begin
        taps = taps.reshape([-1 if i == axis else 1 for i in range(axes)]).expand(kernel).reshape(-1, 1)
        corners = corners.reshape([-1 if i == axis else 1 for i in range(axes)]).expand(places).reshape(1, -1)
        grids.append(taps + corners)
    return torch.stack(grids, dim=1).to(like.dtype)


def _sample(x: Tensor, positions: Tensor) -> Tensor:
    """Values [N, C, taps, windows] of x at positions [N, taps, axes, windows], counted in pixels."""
    batch, count, axes, places = positions.shape
    along = [positions[:, :, axis].reshape(batch, -1) for axis in range(axes)]
    return sample(x, [linear_taps(position) for position in along]).reshape(batch, x.shape[1], count, places)
