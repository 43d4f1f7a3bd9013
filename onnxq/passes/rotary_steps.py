"""Rotary positions in small operators: pairs of features turned by angles that grow with the place.

first' = first cos - second sin,  second' = first sin + second cos         (Su et al., RoFormer, 2021)
"""

from __future__ import annotations

from typing import Any

from onnxq.passes.steps import Steps


def rotate(steps: Steps, x: Any, cosine: Any, sine: Any, size: int, turned: int, interleaved: bool) -> Any:
    """Turn the first `turned` of `size` features of (batch, heads, length, size); tables: (batch, 1, length, half)."""
    moving, staying = x, None
    if turned < size:
        moving, staying = steps.split(x, 3, (turned, size - turned))
    if interleaved:
        pairs = steps.reshape(moving, 0, 0, 0, turned // 2, 2)
        first, second = (_without_last(steps, part, turned // 2) for part in steps.split(pairs, 4, (1, 1)))
    else:
        first, second = steps.split(moving, 3, (turned // 2, turned // 2))
    real = _combined(steps, "Sub", first, cosine, second, sine, x)
    imaginary = _combined(steps, "Add", first, sine, second, cosine, x)
    if interleaved:
        apart = [steps.reshape(part, 0, 0, 0, turned // 2, 1) for part in (real, imaginary)]
        made = steps.reshape(steps.concat(4, *apart), 0, 0, 0, turned)
    else:
        made = steps.concat(3, real, imaginary, role="turned")
    if staying is not None:
        made = steps.concat(3, made, staying, role="turned")
    made.shape = x.shape
    return made


def _without_last(steps: Steps, part: Any, half: int) -> Any:
    return steps.reshape(part, 0, 0, 0, half)


def _combined(steps: Steps, op: str, one: Any, factor: Any, other: Any, other_factor: Any, like: Any) -> Any:
    products = (steps.op("Mul", one, factor), steps.op("Mul", other, other_factor))
    return steps.typed(steps.op(op, *products), like)
