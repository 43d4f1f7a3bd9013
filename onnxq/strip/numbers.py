"""The real numbers behind stored ones: the arithmetic of `onnxq.numerics` with parameters as files have them."""

from __future__ import annotations

import numpy as np

from onnxq.errors import SpecError
from onnxq.numerics import dequantize, fake_quantize
from onnxq.types import PerBlock, PerChannel, PerTensor, QParams, QuantSpec
from onnxq.types.granularity import Granularity
from onnxq.types.number_format import name_of_stored


def parameters(
    stored: str,
    scale: np.ndarray,
    zero_point: np.ndarray | None,
    *,
    shape: tuple[int, ...],
    axis: int = 1,
    block: int = 0,
) -> QParams:
    """Scales and zero points of a tensor of this shape as QParams; `stored` is the numpy name of its type.

    One scale is one of the whole tensor, a list of them belongs to the channels along `axis`, and with a `block` size
    there is one for each block along `axis`. SpecError where that is not a format that onnxq knows, or does not fit.
    """
    granularity: Granularity = PerTensor()
    if block and scale.ndim == len(shape) > 0:
        granularity = PerBlock(axis, block)
    elif scale.size != 1:
        granularity = PerChannel(axis)
    zeros = np.zeros((), np.int32) if zero_point is None else np.asarray(zero_point)
    if zeros.dtype.kind not in "iu":  # ml_dtypes have kinds of their own
        zeros = zeros.astype(np.float32)
    if isinstance(granularity, PerTensor):
        scale, zeros = scale.reshape(-1)[:1].reshape(()), zeros.reshape(-1)[:1].reshape(())
    spec = QuantSpec(name_of_stored(stored), symmetric=not zeros.any(), granularity=granularity)
    if scale.ndim and spec.scale_shape(shape) != scale.shape:
        raise SpecError(f"{spec} of shape {list(shape)} has scales of another shape than {list(scale.shape)}")
    return QParams(spec, scale.astype(np.float32), zeros)


def real_values(codes: np.ndarray, qparams: QParams, dtype: np.dtype) -> np.ndarray:
    """(codes - zero point) * scale, as DequantizeLinear computes it."""
    return dequantize(codes, qparams).astype(dtype, copy=False)


def rounded_values(values: np.ndarray, qparams: QParams, dtype: np.dtype) -> np.ndarray:
    """What QuantizeLinear and DequantizeLinear make of float values."""
    return fake_quantize(values, qparams).astype(dtype, copy=False)


def unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """`count` numbers of `bits` bits each from the last axis of bytes; the lowest bits of a byte come first."""
    if bits not in (1, 2, 4, 8):
        raise SpecError(f"numbers of {bits} bits do not fill bytes evenly")
    if bits == 8:
        return packed[..., :count]
    places = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> places) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)[..., :count]
