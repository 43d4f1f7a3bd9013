"""Resize and Upsample: every axis by itself, as an index (nearest) or a small matrix (linear, cubic).

A matrix holds for each place of the result what it takes of each place of the input. It depends on the sizes alone and
is kept for the last ones. Where torch's own kernel means the same, it is called instead.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from onnxq.errors import ModelError
from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.resize_weights import Filter, Length, nearest_indices, weights
from onnxq.torchnet.registry import Kernel, op

_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}
_MODES = ("nearest", "linear", "cubic")
_WHOLE = 1e-3
"""How far the length that a scale of float32 asks for may be from a whole number that was meant."""

_FRACTIONAL_CORNERS = 19
"""The opset from which ONNX speaks of fractional lengths: its cases then align the corners of the length that a scale
asks for, such as 4.5. Before, "the length of the resized tensor" is the whole 4, as it is in onnxruntime and torch.
"""


@op("Upsample", since=1)
def upsample_first(call: Call) -> Kernel:
    scales = [1.0, 1.0, float(call.attribute("height_scale")), float(call.attribute("width_scale"))]
    return _resizer(call, _old_filter(call), scales=scales)


@op("Upsample", since=7)
def upsample_by_attribute(call: Call) -> Kernel:
    return _resizer(call, _old_filter(call), scales=[float(scale) for scale in call.attribute("scales")])


@op("Upsample", since=9)
def upsample(call: Call) -> Kernel:
    return _resizer(call, _old_filter(call), scales_port=1)


@op("Resize", since=10)
def resize_by_scales(call: Call) -> Kernel:
    return _resizer(call, _old_filter(call), scales_port=1)


@op("Resize", since=11)
def resize(call: Call) -> Kernel:
    kind = call.attribute("mode", "nearest")
    if kind not in _MODES:
        raise call.unsupported(f"mode '{kind}' is not one of {', '.join(_MODES)}")
    found = Filter(
        mode=kind,
        coordinates=call.attribute("coordinate_transformation_mode", "half_pixel"),
        rounding=call.attribute("nearest_mode", "round_prefer_floor"),
        cubic_a=float(call.attribute("cubic_coeff_a", -0.75)),
        exclude_outside=bool(call.attribute("exclude_outside", 0)),
        antialias=bool(call.attribute("antialias", 0)) and kind != "nearest",
        outside=float(call.attribute("extrapolation_value", 0.0)),
    )
    whole = found.coordinates == "align_corners" and call.version < _FRACTIONAL_CORNERS
    return _resizer(call, found, scales_port=2, sizes_port=3, roi_port=1, whole=whole)


def _old_filter(call: Call) -> Filter:
    """Before opset 11: pixels start at 0 on both sides, and the nearest is the one below, or above to shrink."""
    mode = {"bilinear": "linear"}.get(call.attribute("mode", "nearest"), call.attribute("mode", "nearest"))
    if mode not in ("nearest", "linear"):
        raise call.unsupported(f"mode '{mode}' is not one of nearest, linear")
    return Filter(mode=mode, coordinates="asymmetric", rounding="floor", shrinks_up=True)


@dataclass(frozen=True)
class _Target:
    """What an axis becomes: an axis number and its lengths."""

    axis: int
    length: Length


def _resizer(
    call: Call,
    chosen: Filter,
    *,
    scales: list[float] | None = None,
    scales_port: int | None = None,
    sizes_port: int | None = None,
    roi_port: int | None = None,
    whole: bool = False,
) -> Kernel:
    axes = call.attribute("axes", None)
    policy = call.attribute("keep_aspect_ratio_policy", "stretch")
    known_scales = _known(call, scales_port) if scales is None else scales
    known_sizes = _known(call, sizes_port)
    known_roi = _known(call, roi_port) if chosen.coordinates == "tf_crop_and_resize" else []

    def targets(
        shape: Sequence[int], factors: Sequence[float], sizes: Sequence[float], roi: Sequence[float]
    ) -> tuple[_Target, ...]:
        chosen_axes = [axis % len(shape) for axis in axes] if axes is not None else list(range(len(shape)))
        lengths = _lengths(shape, chosen_axes, factors, [int(size) for size in sizes], roi, policy)
        if whole:
            lengths = [replace(length, scale=length.result / max(length.size, 1)) for length in lengths]
        pairs = zip(chosen_axes, lengths, strict=True)
        return tuple(_Target(axis, length) for axis, length in pairs if not length.unchanged)

    if known_scales is not None and known_sizes is not None and known_roi is not None:
        factors, sizes, roi = known_scales, known_sizes, known_roi
        for_shape = functools.lru_cache(maxsize=64)(lambda shape: targets(shape, factors, sizes, roi))

        def run_known(x: Tensor, *others: Tensor | None) -> Tensor:
            return _resize(x, chosen, for_shape(x.shape))

        return run_known

    def run(x: Tensor, *others: Tensor | None) -> Tensor:
        given = (x, *others)
        found = targets(
            x.shape,
            _numbers(given, scales_port, known_scales),
            _numbers(given, sizes_port, known_sizes),
            _numbers(given, roi_port, known_roi),
        )
        return _resize(x, chosen, found)

    return run


def _known(call: Call, port: int | None) -> list[float] | None:
    """Numbers that the model holds; an empty list for an input that is left out."""
    if port is None or not call.has_input(port):
        return []
    values = call.constant(port)
    return None if values is None else [float(value) for value in np.asarray(values).reshape(-1)]


def _numbers(given: Sequence[Any], port: int | None, known: list[float] | None) -> list[float]:
    if known is not None:
        return known
    value = given[port] if port is not None and port < len(given) else None
    return [] if value is None else [float(number) for number in value.detach().reshape(-1).tolist()]


def _lengths(
    shape: Sequence[int],
    axes: Sequence[int],
    scales: Sequence[float],
    sizes: Sequence[int],
    roi: Sequence[float],
    policy: str,
) -> list[Length]:
    count = len(axes)
    if len(scales) != count and len(sizes) != count:
        raise ModelError(f"one scale or size is needed for each of {count} axes, not {len(scales) or len(sizes)}")
    regions = [(roi[i], roi[i + count]) for i in range(count)] if len(roi) == 2 * count else [(0.0, 1.0)] * count
    if len(scales) == count:
        # ONNX takes the region into account; its own files and onnxruntime do so for a crop alone, which has one.
        return [
            Length(shape[axis], _length(shape[axis] * (end - start), scale), scale, start, end)
            for axis, scale, (start, end) in zip(axes, scales, regions, strict=True)
        ]
    factors = [float(np.float32(size / shape[axis])) for axis, size in zip(axes, sizes, strict=True)]
    results = list(sizes)
    if policy != "stretch":
        common = min(factors) if policy == "not_larger" else max(factors)
        factors = [common] * count
        results = [int(np.floor(common * shape[axis] + 0.5)) for axis in axes]
    return [
        Length(shape[axis], result, factor, start, end)
        for axis, result, factor, (start, end) in zip(axes, results, factors, regions, strict=True)
    ]


def _length(size: float, scale: float) -> int:
    """In float32, as onnxruntime and the shape inference of ONNX have it: 10 * 0.7 is 7, and not a little less."""
    return int(np.floor(np.float32(size) * np.float32(scale)))


def _resize(x: Tensor, chosen: Filter, targets: tuple[_Target, ...]) -> Tensor:
    if not targets:
        return x.clone()
    fast = _fused(x, chosen, targets)
    if fast is not None:
        return fast
    if chosen.mode == "nearest" and chosen.coordinates != "tf_crop_and_resize":
        for target in targets:
            x = x.index_select(target.axis, _indices(chosen, target.length).to(x.device))
        return x
    wide = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)
    outside: Tensor | None = None
    for target in targets:
        matrix, beyond = _matrix(chosen, target.length)
        wide = torch.movedim(torch.movedim(wide, target.axis, -1) @ matrix.to(wide).T, -1, target.axis)
        if chosen.coordinates == "tf_crop_and_resize":
            shape = [-1 if axis == target.axis else 1 for axis in range(x.dim())]
            mask = beyond.to(x.device).reshape(shape)
            outside = mask if outside is None else outside | mask
    if outside is not None:
        wide = wide.masked_fill(outside, chosen.outside)
    return _back(wide, x.dtype)


def _back(values: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype.is_floating_point:
        return values.to(dtype)
    limits = torch.iinfo(dtype)
    return values.clamp(limits.min, limits.max).to(dtype)


@functools.lru_cache(maxsize=256)
def _indices(chosen: Filter, length: Length) -> Tensor:
    return torch.from_numpy(nearest_indices(chosen, length))


@functools.lru_cache(maxsize=256)
def _matrix(chosen: Filter, length: Length) -> tuple[Tensor, Tensor]:
    matrix, beyond = weights(chosen, length)
    return torch.from_numpy(matrix), torch.from_numpy(beyond)


def _fused(x: Tensor, chosen: Filter, targets: tuple[_Target, ...]) -> Tensor | None:
    """torch's own kernel for the spatial axes of an image, where it means exactly this; None elsewhere."""
    rank = x.dim()
    if rank not in _LINEAR or not x.is_floating_point() or any(target.axis < 2 for target in targets):
        return None
    if any(abs(target.length.result - target.length.scale * target.length.size) > _WHOLE for target in targets):
        return None  # a fractional length: torch takes the whole one for its coordinates
    if chosen.exclude_outside or chosen.antialias:
        return None
    sizes = list(x.shape[2:])
    for target in targets:
        sizes[target.axis - 2] = target.length.result
    if chosen.mode == "nearest":
        whole = all(float(target.length.scale).is_integer() for target in targets)
        below = chosen.coordinates == "asymmetric" and chosen.rounding == "floor"
        halves = chosen.coordinates == "half_pixel" and chosen.rounding.startswith("round")
        return functional.interpolate(x, size=sizes, mode="nearest") if whole and (below or halves) else None
    if chosen.mode == "cubic" and (rank != 4 or chosen.cubic_a != -0.75):
        return None
    if chosen.coordinates not in ("half_pixel", "pytorch_half_pixel", "align_corners") or 1 in sizes:
        return None
    mode = "bicubic" if chosen.mode == "cubic" else _LINEAR[rank]
    return functional.interpolate(x, size=sizes, mode=mode, align_corners=chosen.coordinates == "align_corners")
