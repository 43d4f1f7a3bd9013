"""Ranges that follow the values while a network is trained.

    weights, biases          the range of the present values
    activations, outputs     average = 0.9 * average + 0.1 * range of the batch; calibration's range counts as the first

Where several processes share a batch, its range is that of all of them together, so that their scales stay equal.
A batch with NaN or infinity changes nothing: the loss shows it.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor

from onnxq.numerics import qparams_from_range
from onnxq.numerics.ranges import with_minimum_scale
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec

MOMENTUM = 0.9
"""How much of an average the next batch leaves."""


def shared_range(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor] | None:
    """The range of a batch, float64, over all processes that share it; None where it is not finite."""
    known = low.isfinite() & high.isfinite()
    ends = torch.stack([-low, high]).double().masked_fill_(~known, torch.inf)
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        distributed.all_reduce(ends, op=distributed.ReduceOp.MAX)
    return None if bool(ends.isinf().any()) else (-ends[0], ends[1])


def own_range(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor] | None:
    """The range of a constant, which is the same in every process; None where it is not finite."""
    return (low, high) if bool((low.isfinite() & high.isfinite()).all()) else None


def numbers_of_range(low: Tensor, high: Tensor, spec: QuantSpec, minimum_scale: float) -> QParams:
    """Scale and zero point for a range, by the formula of `onnxq.numerics` and no other."""
    found = qparams_from_range(_array(low), _array(high), spec)
    return with_minimum_scale(found, minimum_scale)


def range_of(qparams: QParams) -> tuple[np.ndarray, np.ndarray]:
    """The range, float64, that asks for these parameters."""
    spec = qparams.spec
    scale, zero_point = qparams.scale.astype(np.float64), qparams.zero_point
    low, high = spec.ends
    if spec.signed_scale:
        ends = -scale * spec.steps, scale * -low / 2
        return np.minimum(*ends), np.maximum(*ends)
    if spec.symmetric and low < 0:
        return -scale * spec.steps, scale * spec.steps
    return (low - zero_point) * scale, (high - zero_point) * scale


def _array(values: Tensor) -> np.ndarray:
    array: np.ndarray = values.detach().cpu().double().numpy()
    return array
