"""Declarations of tensors (ValueInfoProto): what they say, and whether they still hold after edits."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from onnxq.graph.element_types import numpy_dtype, onnx_dtype

Dimensions = list[int | str | None]


def declared_type(info: onnx.ValueInfoProto) -> tuple[np.dtype[Any] | None, Dimensions | None]:
    """Element type and shape that the declaration of a plain tensor tells; None for what it leaves open."""
    tensor_type = info.type.tensor_type
    dtype = numpy_dtype(tensor_type.elem_type, info.name) if tensor_type.elem_type else None
    if not tensor_type.HasField("shape"):
        return dtype, None
    return dtype, [_dimension(dim) for dim in tensor_type.shape.dim]


def _dimension(dim: Any) -> int | str | None:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else None  # some exporters write -1 for "any size"
    return str(dim.dim_param) or None if kind == "dim_param" else None


def declaration(tensor: gs.Tensor, info: onnx.ValueInfoProto | None, *, is_interface: bool) -> onnx.ValueInfoProto:
    """How `tensor` is declared in a file: as in `info` while that is true, else corrected to what the tensor is now.

    Inputs and outputs (`is_interface`) keep names and unknown sizes of dimensions: these belong to the user.
    """
    if info is None:
        info = onnx.ValueInfoProto(name=tensor.name)
    holds = _holds(tensor, info, is_interface)
    if holds and info.name == tensor.name:
        return info
    told = onnx.ValueInfoProto()
    told.CopyFrom(info)
    told.name = tensor.name
    if not holds:
        _fill_type(told.type.tensor_type, tensor)
    return told


INVENTED = "unk__"
"""With this begin the names that onnx gives to sizes which nothing tells, where it infers shapes."""


def declare(told: onnx.ValueInfoProto, tensor: gs.Variable, *, invented_sizes: bool = True) -> None:
    """Write the declaration of an inner tensor into an empty proto, without `invented_sizes` not with their names."""
    info = tensor.info
    if info is not None:
        told.CopyFrom(declaration(tensor, info, is_interface=False))
        return
    told.name = tensor.name
    shape = None if tensor.shape is None else tuple(tensor.shape)
    if shape is not None and not invented_sizes:
        shape = tuple(None if isinstance(size, str) and size.startswith(INVENTED) else size for size in shape)
    told.type.CopyFrom(_tensor_type(onnx_dtype(tensor.dtype), shape))


@functools.lru_cache(maxsize=4096)
def _tensor_type(element_type: int, shape: tuple[int | str | None, ...] | None) -> onnx.TypeProto:
    """The type that many inner tensors share: copying it takes a tenth of filling it in."""
    made = onnx.TypeProto()
    made.tensor_type.elem_type = element_type
    if shape is not None:
        set_dimensions(made.tensor_type, shape)
    return made


def _holds(tensor: gs.Tensor, info: onnx.ValueInfoProto, is_interface: bool) -> bool:
    """Whether a declaration says what is known of the tensor."""
    kind = info.type.WhichOneof("value")
    if tensor.dtype is None:
        return True
    if kind != "tensor_type":
        return kind is not None
    dtype, shape = declared_type(info)
    if dtype != tensor.dtype:
        return False
    if tensor.shape is None:
        return isinstance(tensor, gs.Variable)
    if shape is None or len(shape) != len(tensor.shape):
        return False
    pairs = zip(shape, tensor.shape, strict=True)
    return all(a == b or (is_interface and not (isinstance(a, int) and isinstance(b, int))) for a, b in pairs)


def _fill_type(told: onnx.TypeProto.Tensor, tensor: gs.Tensor) -> None:
    told.elem_type = onnx_dtype(tensor.dtype)
    told.ClearField("shape")
    if tensor.shape is not None:
        set_dimensions(told, tensor.shape)


def set_dimensions(told: onnx.TypeProto.Tensor, shape: Sequence[int | str | None]) -> None:
    """Declare a shape; None is a dimension without a size or a name."""
    told.ClearField("shape")
    told.shape.SetInParent()
    for size in shape:
        dim = told.shape.dim.add()
        if isinstance(size, str):
            dim.dim_param = size
        elif size is not None:
            dim.dim_value = int(size)
