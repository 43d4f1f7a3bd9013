"""cv2.resize with INTER_LINEAR, to the bit and without OpenCV: how detectors see their images.

Bilinear without antialiasing: each new pixel is a mean of the four around it, also where an image becomes much smaller.
Pillow's `bilinear` takes all pixels in between, as torchvision does, and gives other values. For 8 bits OpenCV computes
in integers, 11 bits for each weight, and halves an image as the mean of 2 x 2 pixels.
"""

from __future__ import annotations

import numpy as np

WEIGHT_BITS = 11
KEPT_BITS = 4
"""Bits of a row's sums that are dropped before rows are weighted, so that OpenCV can do it in 16 bits."""


def resize_linear(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """[height, width, channels] of uint8 in another size."""
    old_height, old_width = pixels.shape[:2]
    if (old_height, old_width) == (height, width):
        return pixels
    if (old_height, old_width) == (2 * height, 2 * width):
        corners = [pixels[row::2, column::2].astype(np.int32) for row in (0, 1) for column in (0, 1)]
        return np.asarray((sum(corners) + 2) >> 2, np.uint8)

    left, to_right = _neighbours(old_width, width)
    outside = (left < 0) | (left >= old_width - 1)
    to_right[outside] = 0
    left = np.clip(left, 0, old_width - 1)
    right = np.minimum(left + 1, old_width - 1)
    left_weight, right_weight = (weight[:, np.newaxis] for weight in _weights(to_right))

    def row_sums(rows: np.ndarray) -> np.ndarray:
        taken = pixels[np.clip(rows, 0, old_height - 1)]
        return np.asarray(taken[:, left] * left_weight + taken[:, right] * right_weight)

    above, to_below = _neighbours(old_height, height)
    upper_weight, lower_weight = (weight[:, np.newaxis, np.newaxis] for weight in _weights(to_below))
    upper = (upper_weight * (row_sums(above) >> KEPT_BITS)) >> 16
    lower = (lower_weight * (row_sums(above + 1) >> KEPT_BITS)) >> 16
    return np.asarray((upper + lower + 2) >> (2 * WEIGHT_BITS - KEPT_BITS - 16), np.uint8)


def _neighbours(old: int, new: int) -> tuple[np.ndarray, np.ndarray]:
    """For each new pixel the old one before its middle, and how far behind that one the middle is (0 .. 1)."""
    step = 1.0 / (new / old)  # as OpenCV computes it: old / new has other last bits
    middles = ((np.arange(new) + 0.5) * step - 0.5).astype(np.float32)
    before = np.floor(middles)
    return before.astype(np.int64), middles - before


def _weights(distance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the pixel before and of the one behind, in 11 bits."""
    whole = np.float32(2**WEIGHT_BITS)
    before, behind = (np.float32(1) - distance) * whole, distance * whole
    return np.rint(before).astype(np.int32), np.rint(behind).astype(np.int32)
