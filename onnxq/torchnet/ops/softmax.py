"""Softmax, LogSoftmax and Hardmax; before opset 13 over all axes from `axis` on, since then over that axis alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op

AlongAxis = Callable[[Tensor, int], Tensor]


def hardmax(x: Tensor, axis: int) -> Tensor:
    """1 at the first of the largest values along an axis, 0 elsewhere."""
    return torch.zeros_like(x).scatter(axis, x.argmax(axis, keepdim=True), 1)


def _register(name: str, function: AlongAxis) -> None:
    @op(name, since=13)
    def build(call: Call) -> Kernel:
        axis = call.attribute("axis", -1)
        return lambda x: function(x, axis)

    @op(name, until=12)
    def build_flattened(call: Call) -> Kernel:
        axis, rank = call.attribute("axis", 1), call.rank()
        if axis == -1 or (rank is not None and axis == rank - 1):
            return lambda x: function(x, -1)

        def run(x: Tensor) -> Tensor:
            if axis == x.ndim or not x.ndim:  # nothing is left to flatten: rows of one value
                return function(x.unsqueeze(-1), -1).squeeze(-1)
            return function(x.flatten(axis), -1).reshape(x.shape)

        return run


_FUNCTIONS: dict[str, AlongAxis] = {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax, "Hardmax": hardmax}

for _name, _function in _FUNCTIONS.items():
    _register(_name, _function)
