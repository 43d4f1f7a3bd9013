"""Limits that a placement sets to what calibration finds: the end of a range, the smallest scale."""

from __future__ import annotations

import numpy as np

from onnxq.numerics.ranges import with_minimum_scale
from onnxq.types import Placement, QParams
from onnxq.types.fake_quantizers import read_fake_quantizer

Changes = tuple[str, ...]
"""What has changed parameters, as `QParamsTable.origins` has it."""


def range_limit(placement: Placement) -> float:
    """The largest magnitude that the range may reach: alpha of a PACT quantizer, otherwise infinity.

    A format without a scale has the range that it has.
    """
    fake_quantizer = read_fake_quantizer(placement.fake_quantizer)
    limited = fake_quantizer.name == "pact" and placement.spec.has_scale
    return fake_quantizer.argument("alpha") if limited else np.inf


def limit_range(low: np.ndarray, high: np.ndarray, placement: Placement) -> tuple[np.ndarray, np.ndarray, Changes]:
    """The part of each range that lies inside the placement's limit, and what that has changed."""
    limit = range_limit(placement)
    if (np.maximum(-low, high) <= limit).all():
        return low, high, ()
    return np.clip(low, -limit, limit), np.clip(high, -limit, limit), _words(limit)


def limit_values(values: np.ndarray, placement: Placement) -> tuple[np.ndarray, Changes]:
    """The values of a constant, saturated at the placement's limit, and what that has changed."""
    limit = range_limit(placement)
    if np.isinf(limit) or (np.abs(values) <= limit).all():
        return values, ()
    return np.clip(values, -limit, limit), _words(limit)


def raise_scale(qparams: QParams, placement: Placement) -> tuple[QParams, Changes]:
    """The parameters with no scale below the placement's smallest, and what that has changed."""
    raised = with_minimum_scale(qparams, placement.minimum_scale)
    if raised is qparams:
        return qparams, ()
    return raised, (f"scale raised to {float(raised.scale.min()):g}",)


def _words(limit: float) -> Changes:
    return (f"limited to {limit:g} by pact",)
