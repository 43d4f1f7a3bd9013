"""quantize, dequantize and fake_quantize: the one definition of what a quantized number is.

    q    = clip(round(x / scale) + zero_point, qmin, qmax)       integers
    q    = saturate(round_to_format(x / scale))                  fp8, fp16, bf16
    q    = code of the nearest power of 2^(1/16)                 nnie8, see `onnxq.numerics.nnie`
    q    = multiple of the step that neighbours share            bfp16, see `onnxq.numerics.bfp`
    real = (q - zero_point) * scale                              float32

Everything but nnie8 is float32, and x / scale is a division (never a product with the reciprocal): bit for bit what
onnxruntime's QuantizeLinear and DequantizeLinear compute. Only int32 divides and rounds in float64, because float32
cannot hold 2^31 - 1; no runtime quantizes to int32, biases are stored that way.

Infinities, and quotients beyond float32, saturate; bfp16 keeps infinities. NaN has no integer: runtimes return whatever
their instruction set yields, so quantizing NaN to an integer format is an error here. The floating-point formats keep
NaN.

float16 arrays are widened first, and that is also what onnxruntime does: for a float16 model quantize with
`with_float16_scale(qparams)` and cast the float32 result of `dequantize` to float16.

One difference is kept: where |x / scale| >= 2^31, the kernels of onnxruntime for float16, for blocks and for fewer than
8 bits wrap around (infinity can become the lowest integer). Here such values saturate like everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from onnxq.errors import DataError, SpecError
from onnxq.numerics.bfp import block_chunks, round_to_blocks
from onnxq.numerics.chunks import chunks
from onnxq.numerics.float_grid import float_storage, round_to_float
from onnxq.numerics.nnie import nnie_codes, nnie_values
from onnxq.numerics.rounding import round_values
from onnxq.types.granularity import PerBlock, PerTensor, resolve_axis
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec


@cache
def storage_dtype(spec: QuantSpec) -> np.dtype:
    """The numpy dtype that holds quantized values: (u)int8, (u)int16, int32, or the type of a float format.

    The codes of nnie8 are sign and magnitude in a uint8. Values of bfp16 are held as bfloat16, which has them all.

    Formats of fewer than 8 bits take a byte for each value; packing is for whoever writes the file.
    """
    if spec.grid == "float":
        return float_storage(spec.dtype)
    if spec.grid == "nnie":
        return np.dtype(np.uint8)
    width = next(bits for bits in (8, 16, 32) if spec.bits <= bits)
    return np.dtype(f"{'int' if spec.signed else 'uint'}{width}")


def quantize(x: np.ndarray, qparams: QParams, *, out: np.ndarray | None = None) -> np.ndarray:
    """Stored numbers for the real values `x`, in `storage_dtype(qparams.spec)` or into `out`.

    Works through `x` in pieces, so that a read-only memory map of many gigabytes needs no more than its result.
    """
    x = np.asarray(x)
    _check_shape(x, qparams)
    out = _destination(out, x.shape, storage_dtype(qparams.spec))
    for index in _pieces(x.shape, qparams.spec):
        scale, zero_point = _parameters_at(qparams, x.shape, index)
        out[index] = _quantize_piece(x, index, scale, zero_point, qparams.spec)
    return out


def dequantize(q: np.ndarray, qparams: QParams, *, out: np.ndarray | None = None) -> np.ndarray:
    """Real float32 values of the stored numbers `q` (any integer dtype, or the dtype of the float format)."""
    q = np.asarray(q)
    _check_shape(q, qparams)
    _check_stored(q, qparams.spec)
    out = _destination(out, q.shape, np.dtype(np.float32))
    for index in chunks(q.shape):
        scale, zero_point = _parameters_at(qparams, q.shape, index)
        out[index] = _dequantize_piece(q[index], scale, zero_point, qparams.spec)
    return out


def fake_quantize(x: np.ndarray, qparams: QParams, *, out: np.ndarray | None = None) -> np.ndarray:
    """What `x` becomes after storage: bit for bit `dequantize(quantize(x))`, without the stored array."""
    x = np.asarray(x)
    _check_shape(x, qparams)
    out = _destination(out, x.shape, np.dtype(np.float32))
    for index in _pieces(x.shape, qparams.spec):
        scale, zero_point = _parameters_at(qparams, x.shape, index)
        stored = _quantize_piece(x, index, scale, zero_point, qparams.spec)
        out[index] = _dequantize_piece(stored, scale, zero_point, qparams.spec)
    return out


def _pieces(shape: tuple[int, ...], spec: QuantSpec) -> Iterator[tuple[slice, ...]]:
    blocks = spec.shared_exponent
    return chunks(shape) if blocks is None else block_chunks(shape, blocks)


def _quantize_piece(
    x: np.ndarray, index: tuple[slice, ...], scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec
) -> np.ndarray:
    if spec.grid == "nnie":
        _refuse_nan(x[index], x.shape, index, spec)
        return nnie_codes(x[index], scale)
    if spec.shared_exponent is not None:
        with np.errstate(invalid="ignore"):  # NaN may be of the kind that signals
            return round_to_blocks(x[index], spec.shared_exponent).astype(storage_dtype(spec))
    work = np.dtype(np.float64 if spec.dtype == "int32" else np.float32)
    with np.errstate(over="ignore", under="ignore"):
        ratio = np.asarray(np.asarray(x[index]).astype(np.float32, copy=False) / scale.astype(work, copy=False))
    if spec.grid == "float":
        return round_to_float(ratio, spec.dtype)
    _refuse_nan(ratio, x.shape, index, spec)
    # The bounds are integers, so limiting before rounding gives the same numbers and keeps infinities out of it.
    np.clip(ratio, (spec.qmin - zero_point).astype(work), (spec.qmax - zero_point).astype(work), out=ratio)
    rounded = round_values(ratio, spec.rounding)
    rounded += zero_point.astype(work)
    return rounded.astype(storage_dtype(spec))


def _refuse_nan(piece: np.ndarray, shape: tuple[int, ...], index: tuple[slice, ...], spec: QuantSpec) -> None:
    if np.isnan(piece).any():
        first = tuple(int(i) + part.start for i, part in zip(np.argwhere(np.isnan(piece))[0], index, strict=True))
        raise DataError(
            f"NaN at index {first} of a tensor of shape {shape} has no {spec.dtype} value: "
            "find the operator or the weight that produces NaN, or leave this tensor in float"
        )


def _dequantize_piece(q: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
    if spec.grid == "nnie":
        return nnie_values(q, scale)
    with np.errstate(over="ignore", under="ignore"):
        if spec.grid == "float":
            return np.asarray(np.asarray(q).astype(np.float32) * scale)
        steps = np.asarray(q).astype(np.int32) - zero_point
        return np.asarray(steps.astype(np.float32) * scale)


def _parameters_at(qparams: QParams, shape: tuple[int, ...], index: tuple[slice, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point of one piece of the tensor, shaped to broadcast against it."""
    granularity = qparams.spec.granularity
    if isinstance(granularity, PerTensor) or not qparams.spec.has_scale:
        return qparams.scale, qparams.zero_point
    axis = resolve_axis(granularity.axis, len(shape))
    if isinstance(granularity, PerBlock):
        blocks = np.arange(index[axis].start, index[axis].stop) // granularity.size
        others = tuple(slice(None) if i == axis else part for i, part in enumerate(index))
        return qparams.scale[others].take(blocks, axis), qparams.zero_point[others].take(blocks, axis)
    column = tuple(-1 if i == axis else 1 for i in range(len(shape)))
    return qparams.scale[index[axis]].reshape(column), qparams.zero_point[index[axis]].reshape(column)


def _check_shape(x: np.ndarray, qparams: QParams) -> None:
    expected = qparams.spec.scale_shape(x.shape)
    if qparams.scale.shape != expected:
        raise SpecError(
            f"a tensor of shape {x.shape} quantized {qparams.spec.granularity} needs scales of shape {expected}, "
            f"got {qparams.scale.shape}"
        )


def _check_stored(q: np.ndarray, spec: QuantSpec) -> None:
    """Refuse arrays that would be misread: real numbers as integers, or bit patterns as float values."""
    wanted = storage_dtype(spec)
    if spec.grid == "float":
        if q.dtype != wanted:
            raise SpecError(
                f"stored values of {spec.dtype} have dtype {wanted}, got {q.dtype}; from_bits reads bit patterns"
            )
    elif q.dtype.kind in "fcb":
        raise SpecError(f"stored values of {spec.dtype} are integers such as {wanted}, got {q.dtype}")


def _destination(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if out is None:
        return np.empty(shape, dtype=dtype)
    if out.shape != shape or out.dtype != dtype:
        raise SpecError(f"out must have shape {shape} and dtype {dtype}, got {out.shape} and {out.dtype}")
    return out
