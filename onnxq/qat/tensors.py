"""Tensors and arrays at the border of a net, for callers that do not import torch themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onnxq.torchnet.values import Value, from_numpy, to_numpy


def is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def of_type(value: object, dtype: object) -> bool:
    """Whether it is a tensor of a type of torch."""
    return isinstance(value, torch.Tensor) and value.dtype == dtype


def true_or_false(value: bool) -> Any:
    """A tensor for a state."""
    return torch.tensor(value)


def results_like(values: Sequence[Value], *, tensors: bool) -> list[Any]:
    """Results of a net or of onnxruntime as tensors, or as numpy arrays."""
    if tensors:
        return [value if is_tensor(value) else from_numpy(value) for value in values]
    return [to_numpy(value) if is_tensor(value) else value for value in values]
