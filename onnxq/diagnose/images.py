"""Preprocessing of images as numbers: what values are, what they could have been, and the way between the two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from onnxq.json_file import JsonObject
from onnxq.runtime.feeds import Feed, InputInfo
from onnxq.runtime.preprocessing import PRESETS, Preprocessing

Numbers = tuple[float, ...]

COLORS = ("RGB", "BGR")
CHANNELS = 3


@dataclass(frozen=True)
class Values:
    """Pixels 0 .. 255 in an order of colours, times `scale`, less `mean`, divided by `std`."""

    scale: float
    mean: Numbers
    std: Numbers
    color: str = "RGB"

    def text(self) -> str:
        """As --preprocess has it."""
        parts = [f"color={self.color}", f"scale={_scale_text(self.scale)}"]
        if any(self.mean):
            parts.append(f"mean={'/'.join(f'{number:g}' for number in self.mean)}")
        if any(number != 1 for number in self.std):
            parts.append(f"std={'/'.join(f'{number:g}' for number in self.std)}")
        return ",".join(parts)

    def settings(self, given: Preprocessing | None) -> JsonObject:
        """The table of a configuration: these values, and everything else as it was given."""
        base = asdict(given or Preprocessing())
        plain = asdict(Preprocessing())
        kept = {key: list(v) if isinstance(v, tuple) else v for key, v in base.items() if v != plain[key]}
        for key in ("mean", "std"):
            kept.pop(key, None)
        scale = _scale_text(self.scale)
        return {
            **kept,
            "color": self.color,
            "scale": scale if "/" in scale else self.scale,
            "mean": list(self.mean),
            "std": list(self.std),
        }


def _scale_text(scale: float) -> str:
    return "1/255" if abs(scale * 255 - 1) < 1e-6 else f"{scale:g}"


def values_of(preprocess: Preprocessing) -> Values:
    """What images have become with given settings, for a floating-point input."""
    scale = 1 / 255 if preprocess.scale is None else preprocess.scale
    mean, std = _three(preprocess.mean, 0.0), _three(preprocess.std, 1.0)
    return Values(scale, mean, std, preprocess.color or "RGB")


def _three(value: float | Numbers | None, plain: float) -> Numbers:
    if value is None:
        return (plain,) * CHANNELS
    return tuple(float(number) for number in value) if isinstance(value, tuple) else (float(value),) * CHANNELS


_IMAGENET = values_of(PRESETS["imagenet"])
USUAL: tuple[Values, ...] = (
    values_of(PRESETS["unit"]),
    _IMAGENET,
    values_of(PRESETS["signed"]),
    Values(1.0, (0.0,) * CHANNELS, (1.0,) * CHANNELS),
    Values(1.0, tuple(255 * number for number in _IMAGENET.mean), (1.0,) * CHANNELS),
)
"""What networks are trained with: 0 .. 1, ImageNet's mean and deviation, -1 .. 1, pixels, pixels less their mean."""


def meanings(low: float, high: float) -> tuple[Values, ...]:
    """What arrays of unknown origin may be, by their range."""
    unit, imagenet, signed, pixels, centred = USUAL
    if low >= 0:
        return (unit,) if high <= 1.001 else (pixels,)
    if high > 20:
        return (centred,)
    return (signed,) if max(-low, high) <= 1.001 else (imagenet,)


def alternatives(given: Values) -> Iterator[Values]:
    """Everything that images could have been made into instead: other colours, other numbers, both."""
    seen = {given}
    for values in (given, *USUAL):
        for color in COLORS:
            turned = values.mean[::-1], values.std[::-1]
            mean, std = (values.mean, values.std) if color == values.color or values == given else turned
            found = Values(values.scale, mean, std, color)
            if found not in seen:
                seen.add(found)
                yield found


@dataclass(frozen=True)
class Transformation:
    """Samples of one input as they would be with other preprocessing."""

    name: str
    axis: int
    given: Values
    wanted: Values

    def __call__(self, feed: Feed) -> Feed:
        array = feed[self.name]
        shape = [-1 if axis == self.axis else 1 for axis in range(array.ndim)]

        def column(numbers: Numbers) -> np.ndarray:
            return np.asarray(numbers, np.float64).reshape(shape)

        given, wanted = self.given, self.wanted
        pixels = (array.astype(np.float64) * column(given.std) + column(given.mean)) / given.scale
        if given.color != wanted.color:
            pixels = np.flip(pixels, self.axis)
        changed = (pixels * wanted.scale - column(wanted.mean)) / column(wanted.std)
        return {**feed, self.name: changed.astype(array.dtype)}

    def formula(self) -> str:
        """The same in a line of numpy, on an array x."""
        shape = ", ".join("-1" if axis == self.axis else "1" for axis in range(4))

        def column(numbers: Numbers) -> str:
            listed = ", ".join(f"{number:g}" for number in numbers)
            return f"np.reshape([{listed}], ({shape}))" if len(set(numbers)) > 1 else f"{numbers[0]:g}"

        given, wanted = self.given, self.wanted
        text = "x"
        if any(number != 1 for number in given.std):
            text = f"{text} * {column(given.std)}"
        if any(given.mean):
            text = f"({text} + {column(given.mean)})"
        if given.color != wanted.color:
            text = f"np.flip({text}, {self.axis})"
        factor = wanted.scale / given.scale
        if abs(factor * 255 - 1) < 1e-6:
            text = f"{text} / 255"
        elif abs(factor - 1) > 1e-6:
            text = f"{text} * {factor:g}"
        if any(wanted.mean):
            text = f"({text} - {column(wanted.mean)})"
        if any(number != 1 for number in wanted.std):
            text = f"{text} / {column(wanted.std)}"
        return f"x = ({text}).astype(np.float32)"


def image_axis(info: InputInfo) -> int | None:
    """The axis of three colours of a float input that takes images; None for any other input."""
    if info.dtype.kind != "f" or len(info.shape) != 4:
        return None
    return next((axis for axis in (1, 3) if info.shape[axis] == CHANNELS), None)
