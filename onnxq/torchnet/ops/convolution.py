"""Convolutions over 1 to 3 spatial axes: Conv, ConvTranspose, CausalConvWithState; Col2Im, which adds windows up."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.windows import SAME, Pads, Windows, for_rank, pad, read_windows, split_pad, symmetric
from onnxq.torchnet.registry import Kernel, op

_CONV: dict[int, Any] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_CONV_TRANSPOSE: dict[int, Any] = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}


@op("Conv", since=1)
def conv(call: Call) -> Kernel:
    return for_rank(call, lambda spatial: _conv(call, spatial))


def _conv(call: Call, spatial: int) -> Kernel:
    windows = read_windows(call, spatial)
    function = _function(call, _CONV, spatial)
    groups = int(call.attribute("group", 1))
    strides, dilations = windows.strides, windows.dilations
    same = symmetric(windows.explicit)
    if windows.fixed and same is not None:

        def run(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            if (
                x.shape[2:] == weight.shape[2:]
                and not any(same)
                and (groups == 1 or groups == x.shape[1] == weight.shape[0])
            ):
                return _one_position(x, weight, bias, groups)
            return function(x, weight, bias, strides, same, dilations, groups)

        return run

    def run_padded(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        padded = pad(x, windows.pads(x.shape[2:], weight.shape[2:]))
        return function(padded, weight, bias, strides, 0, dilations, groups)

    return run_padded


def _one_position(x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
    """A convolution whose input has the size of its kernel, as a product: torch's own takes four times as long."""
    if groups == 1:
        made = functional.linear(x.flatten(1), weight.flatten(1), bias)
    else:
        made = (x.flatten(2) * weight.flatten(1)).sum(2)
        made = made if bias is None else made + bias
    return made[(..., *(None,) * (x.dim() - 2))]


@op("ConvTranspose", since=1)
def conv_transpose(call: Call) -> Kernel:
    return for_rank(call, lambda spatial: _conv_transpose(call, spatial))


def _conv_transpose(call: Call, spatial: int) -> Kernel:
    windows = read_windows(call, spatial)
    function = _function(call, _CONV_TRANSPOSE, spatial)
    groups = int(call.attribute("group", 1))
    added = tuple(call.attribute("output_padding", None) or (0,) * spatial)
    wanted = call.attribute("output_shape", None)
    sizes = None if not wanted else tuple(wanted[-spatial:])  # some files have the batch and the channels too
    strides, dilations = windows.strides, windows.dilations
    fixed = _as_torch_says(windows, windows.explicit, added) if windows.fixed and sizes is None else None
    if fixed is not None:
        padding, output_padding = fixed

        def run(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            return function(x, weight, bias, strides, padding, output_padding, groups, dilations)

        return run

    def run_cut(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        pads, longer = _transposed_pads(windows, x.shape[2:], weight.shape[2:], added, sizes)
        easy = _as_torch_says(windows, pads, longer)
        if easy is not None:
            return function(x, weight, bias, strides, easy[0], easy[1], groups, dilations)
        # torch pads both ends alike and adds less than a stride: compute everything, then cut or lengthen.
        whole = function(x, weight, None, strides, 0, 0, groups, dilations)
        cut = pad(whole, tuple((-begin, more - end) for (begin, end), more in zip(pads, longer, strict=True)))
        return cut if bias is None else cut + bias.reshape(-1, *[1] * spatial)

    return run_cut


def _as_torch_says(
    windows: Windows, pads: Pads, added: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """`padding` and `output_padding` with which torch makes the same cut; None if it cannot."""
    padding = tuple(begin for begin, _ in pads)
    output_padding = tuple(more + begin - end for (begin, end), more in zip(pads, added, strict=True))
    limits = (max(pair) for pair in zip(windows.strides, windows.dilations, strict=True))
    possible = all(0 <= more < limit for more, limit in zip(output_padding, limits, strict=True))
    return (padding, output_padding) if possible and all(begin >= 0 for begin in padding) else None


def _transposed_pads(
    windows: Windows,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    added: tuple[int, ...],
    wanted: tuple[int, ...] | None,
) -> tuple[Pads, tuple[int, ...]]:
    """The pads, and by how much the result is longer at its end than the products reach."""
    if wanted is None and windows.automatic not in SAME:
        return windows.explicit, added
    lengths = wanted or tuple(size * stride for size, stride in zip(sizes, windows.strides, strict=True))
    pads, longer = [], []
    # Without SAME_UPPER the odd pad of an explicit output_shape lies at the beginning.
    automatic = "SAME_UPPER" if windows.automatic == "SAME_UPPER" else "SAME_LOWER"
    for size, span, stride, more, length in zip(
        sizes, windows.spans(kernel), windows.strides, added, lengths, strict=True
    ):
        whole = (size - 1) * stride + span
        begin, end = split_pad(max(0, whole + more - length), automatic)
        pads.append((begin, end))
        longer.append(length - whole + begin + end)
    return tuple(pads), tuple(longer)


def _function(call: Call, table: dict[int, Any], spatial: int) -> Any:
    if spatial not in table:
        raise call.unsupported(f"{spatial} spatial axes; torch has kernels for 1, 2 and 3")
    return table[spatial]


@op("CausalConvWithState", since=27)
def causal_conv_with_state(call: Call) -> Kernel:
    activation = call.attribute("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise call.unsupported(f"activation '{activation}' is not one of none, silu, swish")

    def run(x: Tensor, weight: Tensor, bias: Tensor | None = None, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        width = weight.shape[-1]
        padded = functional.pad(x, (width - 1, 0)) if past is None else torch.cat([past, x], dim=2)
        y = functional.conv1d(padded, weight, bias, groups=x.shape[1])
        if activation != "none":
            y = functional.silu(y)
        return y, padded[:, :, padded.shape[2] - (width - 1) :]

    return run


@op("Col2Im", since=18)
def col2im(call: Call) -> Kernel:
    image_of, block_of = call.ints(1), call.ints(2)
    strides, dilations = call.attribute("strides", None), call.attribute("dilations", None)
    pads = call.attribute("pads", None)

    def run(columns: Tensor, image_shape: Tensor, block_shape: Tensor) -> Tensor:
        image, block = image_of(image_shape), block_of(block_shape)
        axes = len(image)
        steps, gaps = strides or [1] * axes, dilations or [1] * axes
        begins, ends = (pads[:axes], pads[axes:]) if pads else ([0] * axes, [0] * axes)
        padded = [size + begin + end for size, begin, end in zip(image, begins, ends, strict=True)]
        if axes == 2:
            whole = functional.fold(columns, tuple(padded), tuple(block), tuple(gaps), 0, tuple(steps))
        else:
            whole = _fold(columns, padded, block, gaps, steps)
        return pad(whole, tuple((-begin, -end) for begin, end in zip(begins, ends, strict=True)))

    return run


def _fold(columns: Tensor, image: list[int], block: list[int], gaps: list[int], steps: list[int]) -> Tensor:
    """Windows [N, C * block, count] added up to an image, over any number of axes."""
    counts = [
        (size - (width - 1) * gap - 1) // step + 1
        for size, width, gap, step in zip(image, block, gaps, steps, strict=True)
    ]
    batch = columns.shape[0]
    values = columns.reshape(batch, -1, math.prod(block), *counts)
    whole = values.new_zeros((batch, values.shape[1], *image))
    for number, position in enumerate(itertools.product(*(range(width) for width in block))):
        places = tuple(
            slice(at * gap, at * gap + (count - 1) * step + 1, step)
            for at, gap, count, step in zip(position, gaps, counts, steps, strict=True)
        )
        whole[(slice(None), slice(None), *places)] += values[:, :, number]
    return whole
