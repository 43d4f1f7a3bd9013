"""The ONNX element type that stores a number format."""

from __future__ import annotations

from functools import cache

from onnxq.errors import UnsupportedError
from onnxq.types.spec import QuantSpec

_INTEGERS = (("int2", 2), ("int4", 4), ("int8", 8), ("int16", 16), ("int32", 32))
_FLOATS = {"fp8_e4m3": "float8e4m3fn", "fp8_e5m2": "float8e5m2", "fp16": "float16", "bf16": "bfloat16"}


@cache
def container_of(spec: QuantSpec) -> str:
    """The ONNX integer type that holds an integer format: the smallest one with enough bits."""
    for name, bits in _INTEGERS:
        if spec.bits <= bits:
            return name if spec.signed else f"u{name}"
    raise UnsupportedError(f"no ONNX integer type holds {spec.dtype}")


@cache
def stored_type(spec: QuantSpec) -> str:
    """The element type as limits and lint rules name it; what ONNX has no type for goes by its own name (bfp16)."""
    if spec.grid == "affine":
        return container_of(spec)
    return _FLOATS.get(spec.dtype, spec.dtype)
