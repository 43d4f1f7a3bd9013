"""Where the places of a resized axis lie in the original one, and what they take of its values.

    half_pixel             (i + 0.5) / scale - 0.5
    half_pixel_symmetric   the same around the centre: + size / 2 * (1 - result / (scale * size))
    pytorch_half_pixel     half_pixel, but 0 for a result of one place
    tf_half_pixel_for_nn   (i + 0.5) / scale
    align_corners          i * (size - 1) / (result - 1)
    asymmetric             i / scale
    tf_crop_and_resize     start * (size - 1) + i * (end - start) * (size - 1) / (result - 1)

Antialiasing widens the linear and the cubic kernel by 1 / scale when an axis becomes shorter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.errors import UnsupportedError, did_you_mean

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Filter:
    """How values are taken: the attributes of Resize; `shrinks_up`: axes that become shorter take the pixel above."""

    mode: str
    coordinates: str
    rounding: str
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    outside: float = 0.0
    shrinks_up: bool = False

    def __post_init__(self) -> None:
        for value, known, what in (
            (self.coordinates, _COORDINATES, "coordinate_transformation_mode"),
            (self.rounding, _ROUNDINGS, "nearest_mode"),
        ):
            if value not in known:
                raise UnsupportedError(f"{what} '{value}' of a Resize is not known.{did_you_mean(value, known)}")


@dataclass(frozen=True)
class Length:
    """An axis: its size, that of the result, the factor between them, and the region of a crop."""

    size: int
    result: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def unchanged(self) -> bool:
        return self.size == self.result and self.scale == 1.0 and (self.start, self.end) == (0.0, 1.0)


def _symmetric(i: Array, n: Length) -> Array:
    return n.size / 2 * (1 - n.result / (n.scale * n.size)) + (i + 0.5) / n.scale - 0.5


def _aligned(i: Array, n: Length) -> Array:
    # The length that a scale asks for may be fractional; the corners of that one are aligned, unless it was made whole.
    reach = n.scale * n.size - 1
    return i * ((n.size - 1) / reach) if n.result > 1 and reach > 0 else np.zeros_like(i)


def _cropped(i: Array, n: Length) -> Array:
    if n.result == 1:
        return np.full_like(i, 0.5 * (n.start + n.end) * (n.size - 1))
    return n.start * (n.size - 1) + i * (n.end - n.start) * (n.size - 1) / (n.result - 1)


_COORDINATES: dict[str, Callable[[Array, Length], Array]] = {
    "half_pixel": lambda i, n: (i + 0.5) / n.scale - 0.5,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda i, n: (i + 0.5) / n.scale - 0.5 if n.result > 1 else np.zeros_like(i),
    "tf_half_pixel_for_nn": lambda i, n: (i + 0.5) / n.scale,
    "align_corners": _aligned,
    "asymmetric": lambda i, n: i / n.scale,
    "tf_crop_and_resize": _cropped,
}

_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def positions(chosen: Filter, length: Length) -> Array:
    """In float32, as onnxruntime has them: which pixel is the nearest may hang on the last bit."""
    found = _COORDINATES[chosen.coordinates](np.arange(length.result, dtype=np.float32), length)
    return np.asarray(found.astype(np.float64))


def nearest_indices(chosen: Filter, length: Length) -> Array:
    """The place that each place of the result takes its value from."""
    rounding = "ceil" if chosen.shrinks_up and length.scale < 1 else chosen.rounding
    found = _ROUNDINGS[rounding](positions(chosen, length))
    return np.asarray(np.clip(found, 0, length.size - 1).astype(np.int64))


def weights(chosen: Filter, length: Length) -> tuple[Array, Array]:
    """[result, size] weights (float64), and which places of the result lie outside the original."""
    place = positions(chosen, length)
    beyond = (place < 0) | (place > length.size - 1)
    matrix = np.zeros((length.result, length.size))
    rows = np.arange(length.result)
    if chosen.mode == "nearest":
        matrix[rows, nearest_indices(chosen, length)] = 1.0
        return matrix, beyond
    squeeze = min(length.scale, 1.0) if chosen.antialias else 1.0
    reach = math.ceil((1 if chosen.mode == "linear" else 2) / squeeze)
    taps = np.floor(place)[:, None] + np.arange(1 - reach - 1, reach + 2)[None, :]
    shares = _kernel(chosen, (taps - place[:, None]) * squeeze)
    if chosen.exclude_outside:
        shares = np.where((taps < 0) | (taps >= length.size), 0.0, shares)
    if chosen.exclude_outside or chosen.antialias:
        total = shares.sum(axis=1, keepdims=True)
        shares = shares / np.where(total == 0, 1.0, total)
    columns = np.clip(taps, 0, length.size - 1).astype(np.int64)
    np.add.at(matrix, (np.broadcast_to(rows[:, None], columns.shape), columns), shares)
    return matrix, beyond


def _kernel(chosen: Filter, distance: Array) -> Array:
    x, a = np.abs(distance), chosen.cubic_a
    if chosen.mode == "linear":
        return np.asarray(np.maximum(0.0, 1 - x))
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
