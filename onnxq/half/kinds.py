"""The float types of 16 bits: how far they reach, how many digits they have, which opsets have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from onnxq.errors import SpecError
from onnxq.types import QParams, QParamsTable
from onnxq.types.rest import HalfRest


@dataclass(frozen=True)
class HalfKind:
    """A float type of 16 bits.

    largest      the largest finite value
    smallest     the smallest value above zero
    terms        how many equal terms can be added before a further one changes nothing
    opset        from which on QuantizeLinear takes it
    layer_opset  from which on Conv and the like take it
    runs         whether onnxruntime runs models with it: where it has no kernel it converts float16, bfloat16 not
    low_db       a tensor with less than this has lost something; rounding alone costs far less
    """

    name: str
    dtype: np.dtype[Any]
    element_type: int
    largest: float
    smallest: float
    terms: int
    opset: int
    layer_opset: int
    low_db: float
    runs: bool


_KINDS = {
    kind.name: kind
    for kind in (
        HalfKind(
            name="float16",
            dtype=np.dtype(np.float16),
            element_type=TensorProto.FLOAT16,
            largest=65504.0,
            smallest=2.0**-24,
            terms=2**11,
            opset=19,
            layer_opset=10,
            low_db=40.0,
            runs=True,
        ),
        HalfKind(
            name="bfloat16",
            dtype=np.dtype(ml_dtypes.bfloat16),
            element_type=TensorProto.BFLOAT16,
            largest=3.3895e38,
            smallest=2.0**-126,
            terms=2**8,
            opset=22,
            layer_opset=22,
            low_db=25.0,
            runs=False,
        ),
    )
}


SCALE_BITS = 7
"""How many digits of a scale below the normal range are enough: a step that is 1 % larger costs nothing."""


def half_kind(name: str) -> HalfKind:
    if name not in _KINDS:
        raise SpecError(f"half precision is {' or '.join(_KINDS)}, not '{name}'")
    return _KINDS[name]


def opset_for(rest: HalfRest) -> int:
    """The lowest opset in which layers, and quantizers where they have such scales, take the type."""
    kind = half_kind(rest.dtype)
    return max(kind.layer_opset, kind.opset if rest.scales else 0)


def fits(held: QParams, kind: HalfKind) -> bool:
    """Whether the type holds scales of this size: most of its digits are left to the largest of them."""
    if not held.spec.format.in_onnx:
        return True  # blocks have scales of their own types
    return bool(held.scale.max() >= kind.smallest * 2**SCALE_BITS)


def rounded_scales(qparams: QParamsTable, kind: HalfKind) -> QParamsTable:
    """The parameters with scales that the type holds exactly: the nearest ones, and none of them 0.

    A step is free to choose; numbers are quantized with the rounded one everywhere, so that nothing disagrees. Scales
    that do not fit stay as they are: what is computed with them is float32.
    """
    result = qparams.copy()
    for tensor in qparams:
        held = qparams[tensor]
        if not held.spec.format.in_onnx or not fits(held, kind):
            continue
        scale = np.clip(held.scale, kind.smallest, kind.largest).astype(kind.dtype).astype(np.float32)
        if not np.array_equal(scale, held.scale):
            result.change(tensor, QParams(held.spec, scale, held.zero_point), f"scale in {kind.name}")
    return result
