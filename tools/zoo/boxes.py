"""Boxes of detectors: decoding, suppression of those that overlap, and how many of one list are in another.

A box is a row of left, top, right, bottom. Decoding is that of the package a model comes from, in numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

MATCHED = 0.5
"""Intersection over union from which on two boxes are one."""

Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Boxes:
    """`corners` [count, 4], `scores` [count], `labels` [count]."""

    corners: np.ndarray
    scores: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def above(self, threshold: float) -> Boxes:
        return self.chosen(np.flatnonzero(self.scores > threshold))

    def chosen(self, rows: np.ndarray | Sequence[int]) -> Boxes:
        rows = np.asarray(rows, dtype=np.int64)
        return Boxes(self.corners[rows], self.scores[rows], self.labels[rows])

    def suppressed(self, overlap: float) -> Boxes:
        """Without those that overlap one of the same label with a higher score."""
        kept: list[int] = []
        for row in np.argsort(-self.scores, kind="stable"):
            same = [other for other in kept if self.labels[other] == self.labels[row]]
            if not same or intersection_over_union(self.corners[[row]], self.corners[same]).max() < overlap:
                kept.append(int(row))
        return self.chosen(kept)


Decode = Callable[[Outputs], Boxes]
"""All boxes of one sample, with scores in [0, 1]."""


def intersection_over_union(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[some, others]; an empty box has none with anything."""
    low = np.maximum(some[:, None, :2], others[None, :, :2])
    high = np.minimum(some[:, None, 2:], others[None, :, 2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=2)
    areas = [np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None), axis=1) for boxes in (some, others)]
    union = areas[0][:, None] + areas[1][None] - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def matched(some: Boxes, others: Boxes) -> int:
    """How many boxes have a partner of their own: the same label and an overlap of at least one half."""
    if not len(some) or not len(others):
        return 0
    overlaps = intersection_over_union(some.corners, others.corners)
    overlaps[some.labels[:, None] != others.labels[None]] = 0
    count = 0
    while (best := overlaps.max()) >= MATCHED:
        row, column = np.argwhere(overlaps == best)[0]
        overlaps[row], overlaps[:, column] = 0, 0
        count += 1
    return count


def centred(centres: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)


def grid(height: int, width: int) -> np.ndarray:
    """[height * width, 2]: x and y of each cell, row by row."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float64)


def labelled(corners: np.ndarray, scores: np.ndarray) -> Boxes:
    """The best class of each row of `scores` [count, classes]."""
    return Boxes(corners.astype(np.float64), scores.max(axis=1).astype(np.float64), scores.argmax(axis=1))


def yolov8(name: str) -> Decode:
    """[1, 4 + classes, cells]: centre and size in pixels, scores after the sigmoid."""

    def decode(outputs: Outputs) -> Boxes:
        rows = outputs[name][0].T
        return labelled(centred(rows[:, :2], rows[:, 2:4]), rows[:, 4:])

    return decode


def yolox(name: str, size: int, strides: tuple[int, ...] = (8, 16, 32)) -> Decode:
    """[1, cells, 5 + classes]: offsets in cells, logarithms of sizes, objectness, classes."""
    cells = np.concatenate([grid(size // stride, size // stride) for stride in strides])
    steps = np.concatenate([np.full((size // stride) ** 2, stride) for stride in strides])[:, None]

    def decode(outputs: Outputs) -> Boxes:
        rows = outputs[name][0].astype(np.float64)
        sizes = np.exp(np.clip(rows[:, 2:4], None, 10)) * steps
        return labelled(centred((rows[:, :2] + cells) * steps, sizes), rows[:, 4:5] * rows[:, 5:])

    return decode


def picodet(scores: Sequence[str], distances: Sequence[str], height: int, width: int) -> Decode:
    """Scores [1, cells, classes] and distributions of the four distances [1, cells, 4 * bins] for each stride."""
    strides = tuple(8 * 2**level for level in range(len(scores)))

    def decode(outputs: Outputs) -> Boxes:
        corners, found = [], []
        for stride, score, distance in zip(strides, scores, distances, strict=True):
            cells = grid(-(-height // stride), -(-width // stride))
            bins = outputs[distance][0].astype(np.float64).reshape(len(cells), 4, -1)
            shares = np.exp(bins - bins.max(axis=2, keepdims=True))
            far = (shares / shares.sum(axis=2, keepdims=True)) @ np.arange(bins.shape[2]) * stride
            centres = (cells + 0.5) * stride
            corners.append(np.concatenate([centres - far[:, :2], centres + far[:, 2:]], axis=1))
            found.append(outputs[score][0])
        return labelled(np.concatenate(corners), np.concatenate(found))

    return decode


def yunet(outputs: Outputs) -> Boxes:
    """Class and objectness scores, offsets in cells and logarithms of sizes, for each stride."""
    corners, found = [], []
    for stride in (8, 16, 32):
        rows = outputs[f"bbox_{stride}"][0].astype(np.float64)
        side = int(np.sqrt(len(rows)))
        sizes = np.exp(np.clip(rows[:, 2:], None, 10)) * stride
        corners.append(centred((rows[:, :2] + grid(side, side)) * stride, sizes))
        product = outputs[f"cls_{stride}"][0] * outputs[f"obj_{stride}"][0]
        found.append(np.sqrt(np.clip(product, 0, 1)))
    return labelled(np.concatenate(corners), np.concatenate(found))


def centerface(outputs: Outputs) -> Boxes:
    """A map of face centres, logarithms of sizes and offsets in cells of four pixels."""
    heat, sizes, offsets = outputs["537"][0, 0], outputs["538"][0], outputs["539"][0]
    cells = grid(*heat.shape)
    turned = [np.stack([part[1].ravel(), part[0].ravel()], axis=1).astype(np.float64) for part in (sizes, offsets)]
    centres = (cells + turned[1] + 0.5) * 4
    return labelled(centred(centres, np.exp(np.clip(turned[0], None, 10)) * 4), heat.reshape(-1, 1))
