"""Shapes of Reshape outputs whose sizes the graph computes itself: Shape, Gather, Unsqueeze, Concat and the like.

ONNX's inference follows such sizes in operators of opset 13 and later only, and transformers are full of them: behind
the first Reshape of an older file nothing would have a shape, not even a rank. A size that is not known is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import add, mul, sub
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto

Size = int | str | None
"""A number, the name of a dynamic axis, or not known."""

Sizes = list[Size]
MOST = 64
"""Elements of a constant that may be a shape."""

_LARGEST = 2**63
"""Sizes are int64 in ONNX; numbers beyond would grow with every Mul."""


def fill_reshapes(nodes: Iterable[gs.Node]) -> set[int]:
    """Give outputs of Reshape without a shape the sizes that can be followed; returns the ids of these outputs.

    The nodes are in topological order.
    """
    known: dict[int, Sizes] = {}
    news = set()
    for node in nodes:
        if node.domain:
            continue
        if node.op == "Reshape" and len(node.inputs) > 1:
            wanted, output = _sizes(known, node.inputs[1]), node.outputs[0]
            found = output.shape if wanted is None else _merged(output.shape, _reshaped(node, wanted))
            if found != output.shape:
                output.shape = found
                news.add(id(output))
        elif node.op in FOLLOWED and _is_short(node.outputs[0]):
            found = FOLLOWED[node.op](node, [_sizes(known, tensor) for tensor in node.inputs])
            if found is not None:
                known[id(node.outputs[0])] = found
    return news


def _reshaped(node: gs.Node, wanted: Sizes) -> Sizes:
    given = node.inputs[0].shape
    copies = not node.attrs.get("allowzero", 0)
    sizes = [_copied(given, axis) if size == 0 and copies else size for axis, size in enumerate(wanted)]
    if wanted.count(-1) == 1:
        sizes[wanted.index(-1)] = _remaining(given, [size for size in sizes if size != -1])
    return [None if isinstance(size, int) and size < 0 else size for size in sizes]


def _merged(old: Sequence[Size] | None, new: Sizes) -> Sizes:
    """What was known stays."""
    if old is None:
        return new
    if len(old) != len(new):
        return list(old)
    return [other if size is None else size for size, other in zip(old, new, strict=True)]


def _copied(given: Sequence[Size] | None, axis: int) -> Size:
    return given[axis] if given is not None and axis < len(given) else None


def _remaining(given: Sequence[Size] | None, rest: Sizes) -> Size:
    """What -1 stands for, if all other sizes are numbers, or cancel."""
    if given is None:
        return None
    left, right = list(given), []
    for size in rest:
        if isinstance(size, str) and size in left:
            left.remove(size)
        else:
            right.append(size)
    numbers = [size for size in left if isinstance(size, int)]
    divisors = [size for size in right if isinstance(size, int)]
    if len(divisors) < len(right) or 0 in divisors:
        return None
    total, divisor = int(np.prod(numbers, dtype=object)), int(np.prod(divisors, dtype=object))
    names = [size for size in left if not isinstance(size, int)]
    if names:  # one name alone stays itself
        return names[0] if len(names) == 1 and total == divisor else None
    return total // divisor if total % divisor == 0 else None


def _is_short(tensor: gs.Tensor) -> bool:
    return tensor.shape is None or len(tensor.shape) <= 1


def _sizes(known: dict[int, Sizes], tensor: gs.Tensor) -> Sizes | None:
    if isinstance(tensor, gs.Constant):
        shape = tuple(tensor.shape)
        whole = np.issubdtype(np.dtype(tensor.dtype), np.integer)
        small = len(shape) <= 1 and int(np.prod(shape, dtype=np.int64)) <= MOST
        return np.asarray(tensor.values).reshape(-1).tolist() if whole and small else None
    return known.get(id(tensor))


# ---- operators -------------------------------------------------------------------------------------------------------

Follow = Callable[[gs.Node, list[Sizes | None]], Sizes | None]


def _constant(node: gs.Node, inputs: list[Sizes | None]) -> Sizes | None:
    value = next(iter(node.attrs.values()), None)
    if isinstance(value, gs.Constant):
        return _sizes({}, value)
    if isinstance(value, int):
        return [value]
    return list(value) if isinstance(value, list) and all(isinstance(item, int) for item in value) else None


def _shape(node: gs.Node, inputs: list[Sizes | None]) -> Sizes | None:
    shape = node.inputs[0].shape
    return None if shape is None else list(shape)[node.attrs.get("start", 0) : node.attrs.get("end")]


def _gather(node: gs.Node, inputs: list[Sizes | None]) -> Sizes | None:
    sizes, index = inputs[0], inputs[1]
    if index is None or node.attrs.get("axis", 0) not in (0, -1):
        return None
    if not _is_short(node.inputs[0]) or not _is_short(node.inputs[1]):
        return None
    if sizes is None:
        return [None] * len(index)
    return [sizes[i] if isinstance(i, int) and -len(sizes) <= i < len(sizes) else None for i in index]


def _same(node: gs.Node, inputs: list[Sizes | None]) -> Sizes | None:
    if inputs[0] is None and node.op == "Unsqueeze" and node.inputs[0].shape == []:
        return [None]
    return inputs[0]


def _cast(node: gs.Node, inputs: list[Sizes | None]) -> Sizes | None:
    """To integers only: the quotient of two float numbers is not that of two sizes."""
    return inputs[0] if node.attrs["to"] in (TensorProto.INT64, TensorProto.INT32, np.int64, np.int32) else None


def _concat(node: gs.Node, inputs: list[Sizes | None]) -> Sizes | None:
    found: Sizes = []
    for tensor, sizes in zip(node.inputs, inputs, strict=True):
        length = tensor.shape[0] if tensor.shape is not None and len(tensor.shape) == 1 else None
        if sizes is not None:
            found.extend(sizes)
        elif isinstance(length, int) and length <= MOST:
            found.extend([None] * length)
        else:
            return None
        if len(found) > MOST:  # no shape; and Concats of one tensor with itself double at every step
            return None
    return found


def _slice(node: gs.Node, inputs: list[Sizes | None]) -> Sizes | None:
    if inputs[0] is None:
        return None
    if len(node.inputs) > 1:
        starts, ends = inputs[1], inputs[2] if len(inputs) > 2 else None
        steps: Any = inputs[4] if len(inputs) > 4 and node.inputs[4].name else [1]
    else:
        starts, ends, steps = node.attrs.get("starts"), node.attrs.get("ends"), [1]
    if not starts or not ends or not steps:
        return None
    start, end, step = starts[0], ends[0], steps[0]
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int)):
        return None
    return inputs[0][start:end:step]


def _arithmetic(combine: Callable[[int, int], int], neutral: int, *, commutes: bool) -> Follow:
    def follow(node: gs.Node, inputs: list[Sizes | None]) -> Sizes | None:
        one, other = inputs
        if one is None or other is None or (len(one) != len(other) and 1 not in (len(one), len(other))):
            return None
        length = max(len(one), len(other))
        pairs = zip(one * (length // len(one) or 1), other * (length // len(other) or 1), strict=False)
        return [_combined(left, right) for left, right in pairs]

    def _combined(left: Size, right: Size) -> Size:
        if isinstance(left, int) and isinstance(right, int):
            found = combine(left, right)
            return found if abs(found) < _LARGEST else None
        if right == neutral:
            return left
        return right if commutes and left == neutral else None

    return follow


def _quotient(left: int, right: int) -> int:
    return int(left / right) if right else 0  # whole numbers are divided towards zero


FOLLOWED: dict[str, Follow] = {
    "Constant": _constant,
    "Shape": _shape,
    "Gather": _gather,
    "Unsqueeze": _same,
    "Squeeze": _same,
    "Cast": _cast,
    "Identity": _same,
    "Concat": _concat,
    "Slice": _slice,
    "Add": _arithmetic(add, 0, commutes=True),
    "Sub": _arithmetic(sub, 0, commutes=False),
    "Mul": _arithmetic(mul, 1, commutes=True),
    "Div": _arithmetic(_quotient, 1, commutes=False),
}
