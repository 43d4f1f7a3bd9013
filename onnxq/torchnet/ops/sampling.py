"""GridSample: values of an image at the points of a grid; AffineGrid: the grid of an affine map."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.taps import cubic_taps, linear_taps, nearest_taps, sample
from onnxq.torchnet.registry import Kernel, op

_MODES = {
    "linear": "linear",
    "bilinear": "linear",
    "nearest": "nearest",
    "cubic": "cubic",
    "bicubic": "cubic",
}
"""Names of opset 16 and of opset 20."""

_TAPS = {"linear": linear_taps, "nearest": nearest_taps, "cubic": cubic_taps}
_FUSED = {(4, "linear"): "bilinear", (4, "nearest"): "nearest", (4, "cubic"): "bicubic"} | {
    (5, "linear"): "bilinear",
    (5, "nearest"): "nearest",
}
_PADDINGS = ("zeros", "border", "reflection")


@op("GridSample", since=16)
def grid_sample(call: Call) -> Kernel:
    named = call.attribute("mode", "linear")
    padding = call.attribute("padding_mode", "zeros")
    corners = bool(call.attribute("align_corners", 0))
    if named not in _MODES:
        raise call.unsupported(f"mode '{named}' is not one of {', '.join(_MODES)}")
    if padding not in _PADDINGS:
        raise call.unsupported(f"padding_mode '{padding}' is not one of {', '.join(_PADDINGS)}")
    mode = _MODES[named]

    def run(x: Tensor, grid: Tensor) -> Tensor:
        values = x if x.is_floating_point() else x.to(torch.float32)
        fused = _FUSED.get((x.dim(), mode))
        if fused is not None:
            y = functional.grid_sample(
                values, grid.to(values.dtype), mode=fused, padding_mode=padding, align_corners=corners
            )
        else:
            y = _sample(values, grid.to(values.dtype), mode, padding, corners)
        return y.to(x.dtype)

    return run


def _sample(x: Tensor, grid: Tensor, mode: str, padding: str, corners: bool) -> Tensor:
    """Any number of axes, which torch's kernel does not have."""
    sizes = x.shape[2:]
    points = grid.reshape(grid.shape[0], -1, len(sizes)).flip(2)  # a point lists the innermost axis first
    taps = []
    for axis, size in enumerate(sizes):
        place = points[..., axis]
        place = (place + 1) / 2 * (size - 1) if corners else ((place + 1) * size - 1) / 2
        if mode != "cubic":  # whose taps are moved one by one
            place = _moved(place, size, padding, corners)
        taps.append(_TAPS[mode](place))
    found = sample(x, taps, lambda index, axis: _moved(index, sizes[axis], padding, corners))
    return found.reshape(x.shape[0], x.shape[1], *grid.shape[1:-1])


def _moved(place: Tensor, size: int, padding: str, corners: bool) -> Tensor:
    """Places (or indices) outside the image, sent to its border or reflected there; those of `zeros` stay."""
    if padding == "zeros":
        return place
    if padding == "reflection":
        low, span = (0.0, size - 1) if corners else (-0.5, size)
        if span == 0:
            return torch.zeros_like(place)
        folded = torch.remainder(place - low, 2 * span)
        reflected = torch.minimum(folded, 2 * span - folded) + low
        place = reflected.to(place.dtype)
    return place.clamp(0, size - 1)


@op("AffineGrid", since=20)
def affine_grid(call: Call) -> Kernel:
    corners = bool(call.attribute("align_corners", 0))
    ints = call.ints(1)

    def run(theta: Tensor, size: Tensor) -> Tensor:
        return functional.affine_grid(theta, ints(size), align_corners=corners)

    return run
