"""NonMaxSuppression: the best boxes of each class, without those that overlap a better one."""

from __future__ import annotations

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op


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
        found: list[tuple[int, int, int]] = []
        with torch.no_grad():
            low, high = _corners(boxes, centred)
            for batch in range(scores.shape[0]):
                for number in range(scores.shape[1]):
                    kept = _kept(low[batch], high[batch], scores[batch, number], most, allowed, threshold)
                    found.extend((batch, number, box) for box in kept)
        return torch.tensor(found, dtype=torch.int64, device=boxes.device).reshape(-1, 3)

    return run


def _corners(boxes: Tensor, centred: bool) -> tuple[Tensor, Tensor]:
    """The smaller and the larger corner of each box; the two given ones may be any that face each other."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        return first - second / 2, first + second / 2
    return torch.minimum(first, second), torch.maximum(first, second)


def _kept(low: Tensor, high: Tensor, scores: Tensor, most: int, allowed: float, threshold: float | None) -> list[int]:
    """Boxes from the best score down; of equal scores the first box wins."""
    order = torch.argsort(scores, descending=True, stable=True)
    if threshold is not None:
        order = order[scores[order] > threshold]
    area = (high - low).prod(-1)
    kept: list[int] = []
    while len(kept) < most and order.numel():
        best, order = order[0], order[1:]
        kept.append(int(best))
        common = (torch.minimum(high[order], high[best]) - torch.maximum(low[order], low[best])).clamp(min=0).prod(-1)
        union = area[order] + area[best] - common
        # A box without an area covers nothing, and nothing covers it.
        real = (common > 0) & (area[order] > 0) & (area[best] > 0) & (union > 0)
        order = order[~(real & (common / union > allowed))]
    return kept
