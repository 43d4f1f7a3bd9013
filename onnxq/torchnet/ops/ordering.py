"""Operators that look for values: TopK, ArgMax, ArgMin, Unique, NonZero."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.widen import widened
from onnxq.torchnet.registry import Builder, Kernel, op
from onnxq.torchnet.values import Value


@op("NonZero", since=9)
def non_zero(call: Call) -> Kernel:
    return widened(call, lambda x: x.nonzero().t(), back=())


# ---- the largest -----------------------------------------------------------------------------------------------------


def _top_k(call: Call, count_of: Callable[[Value], int]) -> Kernel:
    """Sorted, because ONNX wants the first of equal values first, which `topk` of torch does not promise."""
    axis, largest = call.attribute("axis", -1), bool(call.attribute("largest", 1))

    def run(x: Tensor, k: Value = None) -> tuple[Tensor, Tensor]:
        count = count_of(k)
        values, places = x.sort(dim=axis, descending=largest, stable=True)
        return values.narrow(axis, 0, count), places.narrow(axis, 0, count)

    return widened(call, run, ordered=True, back=(0,))


@op("TopK", since=1)
def top_k_attribute(call: Call) -> Kernel:
    count = call.attribute("k")
    return _top_k(call, lambda value: count)


@op("TopK", since=10)
def top_k(call: Call) -> Kernel:
    numbers = call.ints(1)
    return _top_k(call, lambda value: numbers(value)[0])


def _place_of(find: Callable[[Tensor, int, bool], Tensor]) -> Builder:
    def builder(call: Call) -> Kernel:
        axis, keep = call.attribute("axis", 0), bool(call.attribute("keepdims", 1))
        last = bool(call.attribute("select_last_index", 0))

        def run(x: Tensor) -> Tensor:
            if x.dtype is torch.bool:
                x = x.byte()
            if not last:
                return find(x, axis, keep)
            return x.shape[axis] - 1 - find(x.flip(axis), axis, keep)

        return widened(call, run, ordered=True, back=())

    return builder


op("ArgMax", since=1)(_place_of(torch.argmax))
op("ArgMin", since=1)(_place_of(torch.argmin))


# ---- Unique ----------------------------------------------------------------------------------------------------------


@op("Unique", since=11)
def unique(call: Call) -> Kernel:
    """Distinct values or slices, where each is first, which one each value is, and how often it is there.

    They are found by numpy, since torch does not tell where a value is first; the values themselves are read by torch.
    """
    axis, in_order = call.attribute("axis", None), bool(call.attribute("sorted", 1))

    def run(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        searched = x.detach().cpu()
        plain = searched.float() if searched.dtype in (torch.float16, torch.bfloat16) else searched
        _, first, inverse, counts = np.unique(
            plain.numpy(), return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        order = np.arange(first.size) if in_order else np.argsort(first)
        renamed = np.empty_like(order)
        renamed[order] = np.arange(order.size)
        places = torch.from_numpy(first[order]).to(x.device)
        values = x.reshape(-1).index_select(0, places) if axis is None else x.index_select(axis, places)
        return (
            values,
            places,
            torch.from_numpy(renamed[inverse.reshape(-1)]).to(x.device),
            torch.from_numpy(counts[order]).to(x.device),
        )

    return widened(call, run, ordered=True, back=(0,))
