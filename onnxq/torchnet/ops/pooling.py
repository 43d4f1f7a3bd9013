"""Pools: the maximum, mean or norm of windows or of whole channels, and MaxUnpool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxq.errors import ModelError
from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.widen import widened
from onnxq.torchnet.ops.windows import Pads, Windows, for_rank, pad, read_windows, symmetric
from onnxq.torchnet.registry import Kernel, op

_MAX: dict[int, Any] = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_MAX_WITH_INDICES: dict[int, Any] = {
    1: functional.max_pool1d_with_indices,
    2: functional.max_pool2d_with_indices,
    3: functional.max_pool3d_with_indices,
}
_MEAN: dict[int, Any] = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def _read(call: Call, spatial: int) -> tuple[Windows, tuple[int, ...]]:
    windows = read_windows(call, spatial)
    call.attribute("kernel_shape")
    if spatial not in _MAX:
        raise call.unsupported(f"{spatial} spatial axes; torch has kernels for 1, 2 and 3")
    assert windows.kernel is not None
    return windows, windows.kernel


# ---- the maximum -----------------------------------------------------------------------------------------------------


@op("MaxPool", since=1)
def max_pool(call: Call) -> Kernel:
    return for_rank(call, lambda spatial: _max_pool(call, spatial))


def _max_pool(call: Call, spatial: int) -> Kernel:
    windows, kernel = _read(call, spatial)
    with_indices = call.has_output(1)
    column_major = bool(call.attribute("storage_order", 0))
    function = (_MAX_WITH_INDICES if with_indices else _MAX)[spatial]
    same = symmetric(windows.explicit)
    direct = windows.fixed and same is not None and _torch_takes(same, windows.spans(kernel))
    strides, dilations, ceil = windows.strides, windows.dilations, windows.ceil

    def run(x: Tensor) -> Tensor:
        return function(x, kernel, strides, same, dilations, ceil)

    def general(x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        begins = [0] * spatial
        values = x if x.is_floating_point() else x.to(torch.float32)  # integers of 8 bits, for which it is exact
        if direct:
            pooled = function(values, kernel, strides, same, dilations, ceil)
            padded = x
        else:
            pads = windows.pads(x.shape[2:], kernel)
            begins = [begin for begin, _ in pads]
            padded = pad(values, _longer(pads, windows.overhang(x.shape[2:], kernel, pads)), -math.inf)
            pooled = function(padded, kernel, strides, 0, dilations)
        if not with_indices:
            return pooled.to(x.dtype)
        indices = _whole_indices(pooled[1], x.shape, padded.shape[2:], begins, column_major)
        return pooled[0].to(x.dtype), indices

    declared = call.element_type(0)
    return run if direct and not with_indices and declared is not None and declared.kind == "f" else general


def _torch_takes(pads: Sequence[int], spans: Sequence[int]) -> bool:
    return all(2 * one <= span for one, span in zip(pads, spans, strict=True))


def _longer(pads: Pads, overhang: Sequence[int]) -> Pads:
    return tuple((begin, end + more) for (begin, end), more in zip(pads, overhang, strict=True))


def _whole_indices(
    indices: Tensor, shape: Sequence[int], padded: Sequence[int], begins: Sequence[int], column_major: bool
) -> Tensor:
    """Indices into one padded channel, as ONNX has them: into the whole tensor without its pads."""
    sizes = shape[2:]
    coordinates: list[Tensor] = []
    rest = indices
    for size, begin in zip(reversed(padded), reversed(begins), strict=True):
        coordinates.insert(0, rest % size - begin)
        rest = rest // size
    strides = [math.prod(sizes[:axis] if column_major else sizes[axis + 1 :]) for axis in range(len(sizes))]
    channel = torch.arange(math.prod(shape[:2]), device=indices.device) * math.prod(sizes)
    total = channel.reshape(*shape[:2], *[1] * len(sizes)).expand_as(indices)
    for coordinate, stride in zip(coordinates, strides, strict=True):
        total = total + coordinate * stride
    return total


@op("MaxUnpool", since=9)
def max_unpool(call: Call) -> Kernel:
    kernel = [int(k) for k in call.attribute("kernel_shape")]
    spatial = len(kernel)
    windows = read_windows(call, spatial)
    ints = call.ints(2) if call.has_input(2) else None

    def run(x: Tensor, indices: Tensor, output_shape: Tensor | None = None) -> Tensor:
        sizes = [
            (size - 1) * stride - begin - end + width
            for size, stride, (begin, end), width in zip(
                x.shape[2:], windows.strides, windows.explicit, kernel, strict=True
            )
        ]
        shape = (*x.shape[:2], *sizes)
        y = x.new_zeros(math.prod(shape)).scatter(0, indices.reshape(-1), x.reshape(-1)).reshape(shape)
        if output_shape is None or ints is None:
            return y
        wanted = ints(output_shape)[-spatial:]
        return pad(y, tuple((0, target - size) for target, size in zip(wanted, sizes, strict=True)))

    return run


# ---- means and norms -------------------------------------------------------------------------------------------------


@op("AveragePool", since=1)
def average_pool(call: Call) -> Kernel:
    return for_rank(call, lambda spatial: _in_a_wide_type(call, spatial, _average_pool(call, spatial)))


def _average_pool(call: Call, spatial: int) -> Kernel:
    windows, kernel = _read(call, spatial)
    count_pads = bool(call.attribute("count_include_pad", 0))
    same = symmetric(windows.explicit)
    dense = all(gap == 1 for gap in windows.dilations)
    function, strides, ceil = _MEAN[spatial], windows.strides, windows.ceil
    if dense and windows.fixed and same is not None and _torch_takes(same, kernel):

        def run(x: Tensor) -> Tensor:
            return function(x, kernel, strides, same, ceil, count_pads)

        return run

    def run_padded(x: Tensor) -> Tensor:
        pads = windows.pads(x.shape[2:], kernel)
        overhang = windows.overhang(x.shape[2:], kernel, pads)
        mean = window_mean(pad(x, _longer(pads, overhang)), windows, kernel)
        if not any(overhang) and (count_pads or not any(map(any, pads))):
            return mean
        # The mean counted places that do not count: divide by the share of those that do.
        places = x.new_ones((1, 1, *x.shape[2:]))
        places = pad(places, pads, 1.0 if count_pads else 0.0)
        places = pad(places, tuple((0, more) for more in overhang))
        return mean / window_mean(places, windows, kernel)

    return run_padded


@op("LpPool", since=1)
def lp_pool(call: Call) -> Kernel:
    """Powers of half precision overflow where their root does not."""
    return for_rank(call, lambda spatial: widened(call, _lp_pool(call, spatial), half=True))


def _lp_pool(call: Call, spatial: int) -> Kernel:
    windows, kernel = _read(call, spatial)
    p = float(call.attribute("p", 2))

    def run(x: Tensor) -> Tensor:
        pads = windows.pads(x.shape[2:], kernel)
        padded = pad(x, _longer(pads, windows.overhang(x.shape[2:], kernel, pads)))
        return root(window_mean(padded.abs().pow(p), windows, kernel) * math.prod(kernel), p)

    return run


def _in_a_wide_type(call: Call, spatial: int, kernel: Kernel) -> Kernel:
    """torch has no means of half precision over volumes."""
    return widened(call, kernel, half=True) if spatial == 3 else kernel


def window_mean(x: Tensor, windows: Windows, kernel: Sequence[int]) -> Tensor:
    """The mean of every window of an input that is padded already."""
    if all(gap == 1 for gap in windows.dilations):
        return _MEAN[len(kernel)](x, kernel, windows.strides)
    axes = range(2, 2 + len(kernel))
    for axis, span, stride in zip(axes, windows.spans(kernel), windows.strides, strict=True):
        x = x.unfold(axis, span, stride)
    for axis, gap in enumerate(windows.dilations, start=-len(kernel)):
        x = x.index_select(axis, torch.arange(0, x.shape[axis], gap, device=x.device))
    return x.mean(dim=tuple(range(-len(kernel), 0)))


def root(powers: Tensor, p: float) -> Tensor:
    """The p-th root of sums of powers; its gradient at 0 is 0, not infinite."""
    positive = powers > 0
    safe = torch.where(positive, powers, torch.ones_like(powers))
    found = safe if p == 1 else safe.sqrt() if p == 2 else safe.pow(1 / p)
    return torch.where(positive, found, torch.zeros_like(powers))


# ---- whole channels --------------------------------------------------------------------------------------------------


@op("GlobalAveragePool", since=1)
def global_average_pool(call: Call) -> Kernel:
    def run(x: Tensor) -> Tensor:
        return x.mean(dim=_spatial(x), keepdim=True)

    return run


@op("GlobalMaxPool", since=1)
def global_max_pool(call: Call) -> Kernel:
    def run(x: Tensor) -> Tensor:
        return x.amax(dim=_spatial(x), keepdim=True)

    return run


@op("GlobalLpPool", since=1)
def global_lp_pool(call: Call) -> Kernel:
    p = float(call.attribute("p", 2))

    def run(x: Tensor) -> Tensor:
        return root(x.abs().pow(p).sum(dim=_spatial(x), keepdim=True), p)

    return widened(call, run, half=True)


def _spatial(x: Tensor) -> tuple[int, ...]:
    if x.dim() < 3:
        raise ModelError(f"a pool over whole channels needs a spatial axis; its input has the shape {list(x.shape)}")
    return tuple(range(2, x.dim()))
