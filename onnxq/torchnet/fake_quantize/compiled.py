"""Quantized values and their gradients in one pass over memory, in C, where that was built.

torch takes four passes forward and four back, and a training step waits for memory. Forward the numbers are those of
`onnxq.numerics`; back, sums are added up in parts of SLICE values, whichever thread computes them. A function returns
None where C does not do it, and its caller takes the way in torch: for other types and devices, for scales beside which
values do not lie in rows, for small tensors, and for NaN.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from onnxq.numerics.compiled import MOST_BITS
from onnxq.types.spec import QuantSpec

try:
    import onnxq.numerics._rounding as rounding
    import onnxq.torchnet.fake_quantize._gradients as gradients
except ImportError:
    rounding = gradients = None

COMPILED = gradients is not None
"""Whether C is available in this installation."""

FEWEST = 2**12
"""Values of a tensor from which it takes less time than torch."""

SLICE = 2**17
"""Values that one thread does in a row."""

Result = TypeVar("Result")

_PLAIN = (Tensor, nn.Parameter)
"""What has memory: not what torch traces with."""


@dataclass(frozen=True)
class _Rows:
    """Rows of `length` values from `start` on; row r has scale `first` + r, or with `vector` each place has its own."""

    start: int
    count: int
    length: int
    first: int = 0
    vector: bool = False

    @property
    def values(self) -> slice:
        return slice(self.start, self.start + self.count * self.length)

    def scales(self, each: np.ndarray) -> np.ndarray:
        """Those of a flat array of scales that the rows read; the only one where there is one."""
        return each if self.vector or each.size == 1 else each[self.first : self.first + self.count]


def rounded_in_c(x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor | None:
    """What `grid_values` returns; scale and zero point are spread (`Layout`)."""
    if not (COMPILED and spec.evenly_spaced and spec.bits <= MOST_BITS and spec.rounding == "half_even"):
        return None
    rows = _rows_of(x, scale) if _has_memory(x) else None
    if rows is None:
        return None
    result = torch.empty_like(x)
    values, made = _flat(x), _flat(result)
    unit, moved = _parameters(scale, zero_point)

    def work(part: _Rows) -> bool:
        own = (part.scales(unit), part.scales(moved))
        layout = (part.count, part.length, 1, 1 if part.vector else len(own[0]), part.vector)
        return bool(rounding.fake(values[part.values], *own, made[part.values], *layout, spec.qmin, spec.qmax))

    return result if all(_done(work, rows)) else None


def learnt_in_c(
    x: Tensor, y: Tensor, gradient: Tensor, scale: Tensor, zero_point: Tensor, ends: tuple[float, float]
) -> tuple[Tensor, Tensor] | None:
    """The gradient of x, and for each scale the sum of gradient * (y - x inside the range), in the shape of the scale.

    `ends` are those of the range: of x where there is one scale, else of x / scale + zero point.
    """
    if not (COMPILED and _has_memory(x) and _has_memory(y) and gradient.dtype == torch.float32):
        return None
    rows = _rows_of(x, scale)
    if rows is None or y.shape != x.shape or gradient.shape != x.shape:
        return None
    gradient = gradient.contiguous()
    to_x = torch.empty_like(x)
    arrays = [_flat(tensor) for tensor in (x, y, gradient)]
    made = _flat(to_x)
    unit, moved = _parameters(scale, zero_point)

    def work(part: _Rows) -> np.ndarray:
        sums = np.zeros(part.length if part.vector else part.count)
        own = (part.scales(unit), part.scales(moved))
        own_values = [array[part.values] for array in arrays]
        in_steps = scale.ndim > 0
        gradients.learnt(
            *own_values, *own, made[part.values], sums, part.count, part.length, part.vector, in_steps, *ends
        )
        return sums

    found = list(_done(work, rows))
    if scale.numel() == 1:
        total = np.asarray(sum(float(part.sum()) for part in found))
    else:
        total = np.sum(found, axis=0) if rows[0].vector else np.concatenate(found)
    return to_x, torch.from_numpy(total.astype(np.float32).reshape(tuple(scale.shape)))


def _has_memory(x: Tensor) -> bool:
    plain = type(x) in _PLAIN and x.device.type == "cpu" and x.dtype == torch.float32
    return plain and x.numel() >= FEWEST and x.is_contiguous()


def _rows_of(x: Tensor, scale: Tensor) -> Sequence[_Rows] | None:
    """The values as rows, in slices for several threads; None where no rows have one scale or one for each place."""
    size = x.numel()
    if scale.numel() == 1:
        return [_Rows(start, 1, min(SLICE, size - start)) for start in range(0, size, SLICE)]
    axes = [axis for axis, length in enumerate(scale.shape) if length > 1]
    if len(axes) != 1 or scale.ndim != x.ndim or scale.shape[axes[0]] != x.shape[axes[0]]:
        return None
    before, channels, inner = prod(x.shape[: axes[0]]), x.shape[axes[0]], prod(x.shape[axes[0] + 1 :])
    if inner == 1:
        each = max(1, SLICE // channels)
        return [
            _Rows(first * channels, min(each, before - first), channels, vector=True)
            for first in range(0, before, each)
        ]
    if before != 1:
        return None
    each = max(1, SLICE // inner)
    return [_Rows(first * inner, min(each, channels - first), inner, first) for first in range(0, channels, each)]


def _flat(x: Tensor) -> np.ndarray:
    return np.asarray(x.detach().view(-1).numpy())


def _parameters(scale: Tensor, zero_point: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Flat arrays of equal length, float32 and int32."""
    unit = scale.detach().numpy().astype(np.float32, copy=False)
    moved = np.broadcast_to(zero_point.detach().numpy().astype(np.int32, copy=False), unit.shape)
    return np.ascontiguousarray(unit.reshape(-1)), np.ascontiguousarray(moved.reshape(-1))


def _done(work: Callable[[_Rows], Result], rows: Sequence[_Rows]) -> Iterator[Result]:
    """The results of all parts in their order, computed by as many threads as torch has."""
    threads = min(torch.get_num_threads(), len(rows))
    return map(work, rows) if threads == 1 else _pool(threads, os.getpid()).map(work, rows)


@functools.cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads that stay, for one process: a fork has none of them."""
    return ThreadPoolExecutor(threads, thread_name_prefix="onnxq-rounding")
