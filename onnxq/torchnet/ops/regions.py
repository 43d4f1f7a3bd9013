"""Pools over regions of interest: MaxRoiPool and RoiAlign. Regions are settings: gradients reach the image alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op


@op("MaxRoiPool", since=1)
def max_roi_pool(call: Call) -> Kernel:
    """Fast R-CNN's pool: bins of whole pixels, 0 where a bin is empty."""
    height, width = (int(size) for size in call.attribute("pooled_shape"))
    scale = float(call.attribute("spatial_scale", 1.0))

    def run(x: Tensor, rois: Tensor) -> Tensor:
        pooled = []
        for image, left, top, right, bottom in rois.detach().tolist():
            rows = _bins(top * scale, bottom * scale, height, x.shape[2])
            columns = _bins(left * scale, right * scale, width, x.shape[3])
            channels = x[int(image)]
            pooled.append(
                torch.stack([torch.stack([_largest(channels, row, col) for col in columns], -1) for row in rows], -2)
            )
        return torch.stack(pooled) if pooled else x.new_zeros((0, x.shape[1], height, width))

    return run


def _bins(start: float, end: float, count: int, limit: int) -> list[slice]:
    first, last = _round(start), _round(end)
    step = max(last - first + 1, 1) / count
    return [
        slice(
            min(max(math.floor(number * step) + first, 0), limit),
            min(max(math.ceil((number + 1) * step) + first, 0), limit),
        )
        for number in range(count)
    ]


def _round(value: float) -> int:
    return math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1)  # half away from zero


def _largest(channels: Tensor, rows: slice, columns: slice) -> Tensor:
    if rows.start >= rows.stop or columns.start >= columns.stop:
        return channels.new_zeros(channels.shape[0])
    return channels[:, rows, columns].amax(dim=(1, 2))


@op("RoiAlign", since=10)
def roi_align(call: Call) -> Kernel:
    """Mask R-CNN's pool: the mean of points between the pixels; for 'max' the largest weighted corner of any point."""
    mode = call.attribute("mode", "avg")
    if mode not in ("avg", "max"):
        raise call.unsupported(f"mode '{mode}' is not one of avg, max")
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"
    shifted = call.attribute("coordinate_transformation_mode", default) == "half_pixel"
    height, width = int(call.attribute("output_height", 1)), int(call.attribute("output_width", 1))
    ratio, scale = int(call.attribute("sampling_ratio", 0)), float(call.attribute("spatial_scale", 1.0))
    shift = 0.5 if shifted else 0.0

    def run(x: Tensor, rois: Tensor, images: Tensor) -> Tensor:
        pooled = []
        places = (rois.detach().to(torch.float64) * scale - shift).tolist()
        for image, (left, top, right, bottom) in zip(images.tolist(), places, strict=True):
            rows = _corner_weights(top, bottom, height, ratio, not shifted, x.shape[2], x)
            columns = _corner_weights(left, right, width, ratio, not shifted, x.shape[3], x)
            pooled.append(_mean(x[image], rows, columns) if mode == "avg" else _corners(x[image], rows, columns))
        return torch.stack(pooled) if pooled else x.new_zeros((0, x.shape[1], height, width))

    return run


def _corner_weights(
    start: float, end: float, bins: int, ratio: int, at_least_one: bool, size: int, like: Tensor
) -> Tensor:
    """[2, bins, points, size]: how much of each pixel a point takes, from the pixel before it and the one behind it."""
    length = max(end - start, 1.0) if at_least_one else end - start
    step = length / bins
    count = ratio if ratio > 0 else max(math.ceil(step), 0)
    points = torch.arange(bins * count, dtype=torch.float64).reshape(bins, count)
    position = start + (points // max(count, 1)) * step + (points % max(count, 1) + 0.5) * step / max(count, 1)
    inside = (position >= -1) & (position <= size)
    position = position.clamp(0, size - 1)
    low = position.floor().clamp(max=size - 1)
    share = position - low
    pixels = torch.arange(size, dtype=torch.float64)
    before = (pixels == low.unsqueeze(-1)) * ((1 - share) * inside).unsqueeze(-1)
    behind = (pixels == (low + 1).clamp(max=size - 1).unsqueeze(-1)) * (share * inside).unsqueeze(-1)
    return torch.stack([before, behind]).to(like.dtype).to(like.device)


def _mean(image: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    # The mean over points of products is the product of the means: two small matrix products for a region.
    count = max(rows.shape[2] * columns.shape[2], 1)
    return rows.sum(dim=(0, 2)) @ image @ columns.sum(dim=(0, 2)).T / count


def _corners(image: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    _, height, row_points, _ = rows.shape
    _, width, column_points, _ = columns.shape
    if row_points * column_points == 0:
        return image.new_zeros((image.shape[0], height, width))
    parts = [
        (row.reshape(-1, image.shape[1]) @ image @ column.reshape(-1, image.shape[2]).T)
        .reshape(-1, height, row_points, width, column_points)
        .amax(dim=(2, 4))
        for row in rows
        for column in columns
    ]
    return torch.stack(parts).amax(dim=0)
