"""Pad and CenterCropPad: values put around a tensor, or cut off its sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.widen import widened
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import Value

_PLAIN = (np.float32, np.float64, np.int32, np.int64)
"""Element types whose numbers mean the same to Python; a value of another type is read at run time."""

Sides = list[tuple[int, int]]
"""How many values each axis gets in front and behind; negative numbers cut off."""


def _reflected(places: Tensor, size: int) -> Tensor:
    if size == 1:
        return torch.zeros_like(places)
    period = 2 * (size - 1)
    places = places.remainder(period)
    return torch.minimum(places, period - places)


_PLACES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "reflect": _reflected,
    "edge": lambda places, size: places.clamp(0, size - 1),
    "wrap": lambda places, size: places.remainder(size),
}
"""Which value of the tensor stands at a place outside of it, for each mode."""


def pad_constant(x: Tensor, sides: Sides, value: float | int | bool) -> Tensor:
    """`x` with `value` around it."""
    flat = [number for pair in reversed(sides) for number in pair]
    return torch.constant_pad_nd(x, flat, value)


def _pad_from_within(x: Tensor, sides: Sides, mode: str) -> Tensor:
    """`x` with values of its own around it; what is cut off is cut first, as onnxruntime does."""
    for axis, (front, behind) in enumerate(sides):
        if front == 0 and behind == 0:
            continue
        first = max(0, -front)
        size = x.shape[axis] - first - max(0, -behind)
        places = torch.arange(-max(0, front), size + max(0, behind), device=x.device)
        x = x.index_select(axis, _PLACES[mode](places, size) + first)
    return x


def _mode(call: Call) -> str:
    mode: str = call.attribute("mode", "constant")
    if mode != "constant" and mode not in _PLACES:
        raise call.unsupported(f"mode '{mode}' is not one of constant, {', '.join(_PLACES)}")
    return mode


def _sides(pads: Sequence[int], axes: Sequence[int] | None, rank: int) -> Sides:
    """Pads as ONNX lists them, all fronts and then all ends, by axis."""
    chosen = range(rank) if axes is None else axes
    count = len(chosen)
    sides = [(0, 0)] * rank
    for number, axis in enumerate(chosen):
        sides[axis] = (pads[number], pads[number + count])
    return sides


@op("Pad", since=1)
def pad_attributes(call: Call) -> Kernel:
    mode = _mode(call)
    pads = call.attribute("paddings" if call.version < 2 else "pads")
    value = call.attribute("value", 0.0)

    def run(x: Tensor) -> Tensor:
        sides = _sides(pads, None, x.ndim)
        return pad_constant(x, sides, value) if mode == "constant" else _pad_from_within(x, sides, mode)

    return widened(call, run)


@op("Pad", since=11)
def pad(call: Call) -> Kernel:
    mode = _mode(call)
    pads_of, axes_of = call.ints(1), call.ints(3)
    known = call.constant(2)
    fixed = known.reshape(-1)[0].item() if known is not None and known.dtype in _PLAIN else None

    def run(x: Tensor, pads: Value, value: Value = None, axes: Value = None) -> Tensor:
        sides = _sides(pads_of(pads), None if axes is None else axes_of(axes), x.ndim)
        if mode != "constant":
            return _pad_from_within(x, sides, mode)
        if fixed is not None:
            return pad_constant(x, sides, fixed)
        return pad_constant(x, sides, 0 if value is None else value.reshape(-1)[0].item())

    return widened(call, run)


@op("CenterCropPad", since=18)
def center_crop_pad(call: Call) -> Kernel:
    """The middle of a tensor: of an odd rest, the smaller half is in front."""
    chosen = call.attribute("axes", None)
    shape_of = call.ints(1)

    def run(x: Tensor, shape: Value) -> Tensor:
        axes = range(x.ndim) if chosen is None else chosen
        sides = [(0, 0)] * x.ndim
        for axis, wanted in zip(axes, shape_of(shape), strict=True):
            missing = wanted - x.shape[axis]
            front = abs(missing) // 2
            sides[axis] = (front, missing - front) if missing > 0 else (-front, missing + front)
        return pad_constant(x, sides, 0)

    return widened(call, run)
