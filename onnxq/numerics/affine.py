"""quantize, dequantize and fake_quantize: the one definition of what a quantized number is.

    q    = clip(round(x / scale) + zero_point, qmin, qmax)       integers
    q    = saturate(round_to_format(x / scale))                  fp8, fp16, bf16
    real = (q - zero_point) * scale                              float32

and as a file of `onnxq.numerics.formats` says for the others. Here a tensor is divided into pieces, each with its
scales. Everything but nnie8 is float32, bit for bit what onnxruntime's QuantizeLinear and DequantizeLinear compute.

Infinities, and quotients beyond float32, saturate; bfp16 keeps infinities. NaN has no integer: runtimes return whatever
their instruction set yields, so quantizing NaN to a format that lacks it is an error here.

float16 arrays are widened first, and that is also what onnxruntime does: for a float16 model quantize with
`with_float16_scale(qparams)` and cast the float32 result of `dequantize` to float16.

One difference is kept: where |x / scale| >= 2^31, the kernels of onnxruntime for float16, for blocks and for fewer than
8 bits wrap around (infinity can become the lowest integer). Here such values saturate like everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxq.errors import DataError, SpecError
from onnxq.numerics.by_rows import let_go, row_pieces
from onnxq.numerics.chunks import chunks
from onnxq.numerics.compiled import round_in_c
from onnxq.types.granularity import PerBlock, PerTensor, resolve_axis
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec


def storage_dtype(spec: QuantSpec) -> np.dtype:
    """The numpy dtype that holds quantized values: (u)int8, (u)int16, int32, or the type of a float format.

    Formats of fewer than 8 bits take a byte for each value; packing is for whoever writes the file.
    """
    return spec.format.storage_of(spec)


def quantize(x: np.ndarray, qparams: QParams, *, out: np.ndarray | None = None) -> np.ndarray:
    """Stored numbers for the real values `x`, in `storage_dtype(qparams.spec)` or into `out`.

    Works through `x` in pieces, so that a read-only memory map of many gigabytes needs no more than its result.
    """
    x = np.asarray(x)
    _check_shape(x, qparams)
    out = _destination(out, x.shape, storage_dtype(qparams.spec))
    if round_in_c(x, qparams.spec, qparams.scale, qparams.zero_point, out):
        return out
    for index in _pieces(x.shape, qparams.spec):
        scale, zero_point = _parameters_at(qparams, x.shape, index)
        out[index] = qparams.spec.format.encode(_piece(x, index, qparams.spec), scale, zero_point, qparams.spec)
    return out


def quantize_by_rows(x: np.ndarray, qparams: QParams) -> Iterator[np.ndarray]:
    """The stored numbers of `quantize`, a few rows at a time, whose pages leave memory when they have been read."""
    x = np.asarray(x)
    _check_shape(x, qparams)
    if x.ndim == 0 or not qparams.spec.evenly_spaced:  # other scales may depend on each other
        yield quantize(x, qparams)
        return
    for rows, cells in row_pieces(x.shape, qparams.spec.granularity):
        piece = x[rows].astype(np.float32, copy=False)
        scale, zero_point = qparams.scale[cells], qparams.zero_point[cells]
        out = np.empty(piece.shape, storage_dtype(qparams.spec))
        if not round_in_c(piece, qparams.spec, scale, zero_point, out):
            quantize(piece, QParams(qparams.spec, scale, zero_point), out=out)
        yield out
        let_go(x)


def dequantize(q: np.ndarray, qparams: QParams, *, out: np.ndarray | None = None) -> np.ndarray:
    """Real float32 values of the stored numbers `q` (any integer dtype, or the dtype of the float format)."""
    q = np.asarray(q)
    _check_shape(q, qparams)
    _check_stored(q, qparams.spec)
    out = _destination(out, q.shape, np.dtype(np.float32))
    for index in chunks(q.shape):
        scale, zero_point = _parameters_at(qparams, q.shape, index)
        out[index] = qparams.spec.format.decode(q[index], scale, zero_point, qparams.spec)
    return out


def fake_quantize(x: np.ndarray, qparams: QParams, *, out: np.ndarray | None = None) -> np.ndarray:
    """What `x` becomes after storage: bit for bit `dequantize(quantize(x))`, without the stored array."""
    x = np.asarray(x)
    _check_shape(x, qparams)
    out = _destination(out, x.shape, np.dtype(np.float32))
    if round_in_c(x, qparams.spec, qparams.scale, qparams.zero_point, out):
        return out
    for index in _pieces(x.shape, qparams.spec):
        scale, zero_point = _parameters_at(qparams, x.shape, index)
        out[index] = qparams.spec.format.fake(_piece(x, index, qparams.spec), scale, zero_point, qparams.spec)
    return out


def _pieces(shape: tuple[int, ...], spec: QuantSpec) -> Iterator[tuple[slice, ...]]:
    own = spec.format.pieces(shape, spec)
    return chunks(shape) if own is None else own


def _piece(x: np.ndarray, index: tuple[slice, ...], spec: QuantSpec) -> np.ndarray:
    """The values of a piece, which the format has numbers for."""
    piece = np.asarray(x[index])
    if not spec.format.has_nan:
        _refuse_nan(piece, x.shape, index, spec)
    return piece


def _refuse_nan(piece: np.ndarray, shape: tuple[int, ...], index: tuple[slice, ...], spec: QuantSpec) -> None:
    if np.isnan(piece).any():
        first = tuple(int(i) + part.start for i, part in zip(np.argwhere(np.isnan(piece))[0], index, strict=True))
        raise DataError(
            f"NaN at index {first} of a tensor of shape {shape} has no {spec.dtype} value: "
            "find the operator or the weight that produces NaN, or leave this tensor in float"
        )


def _parameters_at(qparams: QParams, shape: tuple[int, ...], index: tuple[slice, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point of one piece of the tensor, shaped to broadcast against it."""
    granularity = qparams.spec.scale_granularity
    if isinstance(granularity, PerTensor):
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
    if wanted.kind not in "iu":
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
