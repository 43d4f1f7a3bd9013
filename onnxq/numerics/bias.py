"""Bias scales: a bias is added to int32 accumulators, so its scale is scale(input) * scale(weight), zero point 0."""

from __future__ import annotations

import numpy as np

from onnxq.errors import DataError, SpecError
from onnxq.numerics.ranges import MAX_SCALE, next_power_of_two
from onnxq.types.granularity import PerBlock, PerTensor
from onnxq.types.qparams import QParams

BIAS_LIMIT = 2**30
"""Largest bias in steps of its scale: half of int32, so that the other half is left for the sum of products (33,000
products of two 8-bit numbers). A bias is still stored to 1 part in 10^9."""


def derived_bias_scale(input: QParams, weight: QParams) -> np.ndarray:
    """float32 product of the input's scale and each scale of the weight, as integer kernels multiply them."""
    if not isinstance(input.spec.granularity, PerTensor):
        raise SpecError(f"a bias needs an input quantized per tensor, this one is quantized {input.spec.granularity}")
    if isinstance(weight.spec.granularity, PerBlock):
        raise SpecError(
            "a bias cannot follow a weight quantized per block, whose sums have many scales; keep it in float"
        )
    with np.errstate(over="ignore", under="ignore"):
        scale = np.asarray(input.scale * weight.scale, dtype=np.float32)
    if not np.all((scale >= np.finfo(np.float32).tiny) & np.isfinite(scale)):
        raise SpecError(
            f"input scale {float(input.scale):g} times weight scales from {float(weight.scale.min()):g} to "
            f"{float(weight.scale.max()):g} leaves float32: widen the smaller range or keep the bias in float"
        )
    return scale


def widen_weight_scale_for_bias(
    bias: np.ndarray,
    input_scale: np.ndarray | float,
    weight_scale: np.ndarray,
    *,
    power_of_two: bool = False,
    limit: int = BIAS_LIMIT,
) -> np.ndarray:
    """Weight scales large enough for the bias to fit: |bias| / (input_scale * weight_scale) <= limit.

    Where the bias fits already the scale is returned unchanged. Elsewhere the weights become coarser, which the
    output hardly shows: the largest error of a product of 8-bit numbers, half a step of the weight times 255 steps of
    the input, is 127.5 / 2^30 or about 1e-7 of the bias. A per-tensor scale follows its largest bias.
    `power_of_two` keeps power-of-two scales what they are.
    """
    bias64 = np.abs(np.asarray(bias, dtype=np.float64))
    scale = np.asarray(weight_scale, dtype=np.float32)
    if not np.isfinite(bias64).all():
        raise DataError("the bias holds NaN or infinity: repair the model before it is quantized")
    if scale.ndim == 0:
        bias64 = bias64.max(initial=0.0)
    elif bias64.shape != scale.shape:
        raise SpecError(f"one bias for each weight scale: got {bias64.shape} biases and {scale.shape} scales")
    needed = bias64 / (float(np.asarray(input_scale, dtype=np.float32)) * limit)
    if power_of_two:
        needed = np.where(needed > 0, next_power_of_two(needed), 0.0)
    if (needed > MAX_SCALE).any():
        raise DataError(f"a bias of {bias64.max():g} cannot be an integer at input scale {float(input_scale):g}")
    # Up to the next float32, so that the limit holds after rounding too.
    needed32 = np.asarray(needed).astype(np.float32)
    short = needed32.astype(np.float64) < needed
    needed32 = np.where(short, np.nextafter(needed32, np.float32(np.inf)), needed32)
    return np.maximum(scale, needed32)
