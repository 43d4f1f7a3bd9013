"""NonMaxSuppression: the best boxes of each class, without those that overlap a better one.

Its output are indices, so nothing is differentiated; numpy does the many small steps with less overhead than torch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import to_numpy


@op("NonMaxSuppression", since=10)
def non_max_suppression(call: Call) -> Kernel:
    centred = bool(call.attribute("center_point_box", 0))
    call.keep_fixed(2, 3, 4)

    def run(
        boxes: Tensor,
        scores: Tensor,
        limit: Tensor | None = None,
        overlap: Tensor | None = None,
        least: Tensor | None = None,
    ) -> Tensor:
        most = 0 if limit is None else int(limit.reshape(-1)[0])
        allowed = 0.0 if overlap is None else float(overlap.reshape(-1)[0])
        threshold = None if least is None else float(least.reshape(-1)[0])
        low, high = _corners(to_numpy(boxes), centred)
        found: list[tuple[int, int, int]] = []
        for (batch, number), ranked in _rankings(to_numpy(scores), threshold):
            kept = _kept(low[batch], high[batch], ranked, most, allowed)
            found.extend((batch, number, box) for box in kept)
        return torch.tensor(found, dtype=torch.int64, device=boxes.device).reshape(-1, 3)

    return run


def _corners(boxes: np.ndarray, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """The smaller and the larger corner of each box; the two given ones may be any that face each other."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        return first - second / 2, first + second / 2
    return np.minimum(first, second), np.maximum(first, second)


def _rankings(scores: np.ndarray, threshold: float | None) -> list[tuple[tuple[int, int], np.ndarray]]:
    """For each batch and class the boxes from the best score down; of equal scores the first box comes first."""
    rankings = []
    for place in np.ndindex(scores.shape[0], scores.shape[1]):
        mine = scores[place]
        ranked = np.argsort(-mine, kind="stable")
        rankings.append((place, ranked if threshold is None else ranked[mine[ranked] > threshold]))
    return rankings


def _kept(low: np.ndarray, high: np.ndarray, ranked: np.ndarray, most: int, allowed: float) -> list[int]:
    area = (high - low).prod(-1)
    kept: list[int] = []
    while len(kept) < most and ranked.size:
        best, ranked = ranked[0], ranked[1:]
        kept.append(int(best))
        sides = np.minimum(high[ranked], high[best]) - np.maximum(low[ranked], low[best])
        common = np.maximum(sides, 0).prod(-1)
        union = area[ranked] + area[best] - common
        # A box without an area covers nothing, and nothing covers it.
        real = (common > 0) & (area[ranked] > 0) & (area[best] > 0) & (union > 0)
        covered = np.divide(common, union, out=np.zeros_like(common), where=real) > np.float32(allowed)
        ranked = ranked[~covered]
    return kept
