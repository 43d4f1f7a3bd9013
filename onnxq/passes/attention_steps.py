"""Attention in small operators: what the passes for its several forms have in common.

    scores = (Q scale) K^T                        capped: softcap tanh(scores / softcap)
    Y      = softmax(scores + bias) V             where a query sees nothing at all: 0

Masks of known sizes are constants; others are computed from the sizes when the model runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.passes.rewriter import Declined
from onnxq.passes.steps import Size, Steps

CLOSED = -3.0e38
"""What stands for minus infinity: exp of it is 0, and a row of nothing else has a softmax."""
CLOSED_HALF = -6.0e4


@dataclass(frozen=True)
class Window:
    """Which keys a query sees by their places: those up to its own, and so many to the left and right (-1: all)."""

    causal: bool = False
    left: int = -1
    right: int = -1

    @property
    def open(self) -> bool:
        return not self.causal and self.left < 0 and self.right < 0


@dataclass
class Scores:
    """The scores at the stages that an Attention can show, and what they become.

    `added` has the bias, `biased` also hides what `allowed` (a tensor or None) leaves out.
    """

    raw: Any
    capped: Any
    added: Any
    biased: Any
    probabilities: Any
    allowed: Any


def closed(steps: Steps, like: Any) -> float:
    return CLOSED_HALF if steps.dtype(like).name == "float16" else CLOSED


def split_heads(steps: Steps, packed: Any, heads: int) -> Any:
    """(batch, length, heads x size) as (batch, heads, length, size)."""
    return steps.transpose(steps.reshape(packed, 0, 0, heads, _left(steps, packed, heads)), 0, 2, 1, 3)


def _left(steps: Steps, packed: Any, heads: int) -> int:
    """The size of a head, as a number where it is known: an axis of length 0 elsewhere could not tell what is left."""
    width = (steps.graph.shape(packed) or (None,))[-1]
    return width // heads if isinstance(width, int) else -1


def merge_heads(steps: Steps, split: Any, width: int | None = None) -> Any:
    """(batch, heads, length, size) as (batch, length, heads x size)."""
    return steps.reshape(steps.transpose(split, 0, 2, 1, 3), 0, 0, -1 if width is None else width)


def repeat_heads(steps: Steps, item: Any, heads: int, times: int) -> Any:
    """Each of `heads` keys or values `times` times, one behind the other: neighbours of the query share one."""
    if times == 1:
        return item
    chosen = steps.constant(np.repeat(np.arange(heads, dtype=np.int64), times), "heads")
    return steps.typed(steps.op("Gather", item, chosen, role="shared", attrs={"axis": 1}), item)


def attend(
    steps: Steps,
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float,
    softcap: float = 0.0,
    bias: Any = None,
    allowed: Any = None,
    may_be_blind: bool = False,
    sink: Any = None,
    precision: np.dtype[Any] | None = None,
) -> tuple[Any, Scores]:
    """The result with its heads apart, and the scores.

    `bias` is added to them, `allowed` is a boolean tensor, or an array of numpy, that says what a query sees;
    `may_be_blind` says that a row of it may be all False, and gives 0 then. `sink`, (1, heads, 1, 1), is the score of
    a key whose value is 0.
    """
    scaled = steps.typed(steps.op("Mul", query, steps.number(scale, query), role="scaled"), query)
    raw = steps.typed(steps.op("MatMul", scaled, steps.transpose(key, 0, 1, 3, 2), role="scores"), query)
    capped = raw
    if softcap:
        divided = steps.op("Div", raw, steps.number(softcap, query))
        capped = steps.op("Mul", steps.op("Tanh", divided), steps.number(softcap, query))
        steps.typed(capped, query)
    biased = capped if bias is None else steps.typed(steps.op("Add", capped, bias, role="biased"), query)
    added = biased
    condition = steps.constant(allowed, "seen") if isinstance(allowed, np.ndarray) else allowed
    if condition is not None:
        hidden = steps.number(closed(steps, query), query)
        biased = steps.typed(steps.op("Where", condition, biased, hidden, role="masked"), query)
    inner = steps.dtype(query) if precision is None else precision
    scores = biased if sink is None else steps.concat(3, biased, _column(steps, sink, biased), role="with_sink")
    wide = scores if inner == steps.dtype(query) else steps.cast(scores, inner)
    probabilities = steps.op("Softmax", wide, role="softmax", attrs={"axis": -1})
    probabilities = steps.cast(probabilities, steps.dtype(query)) if wide is not scores else probabilities
    if sink is not None:
        probabilities = steps.slice(steps.typed(probabilities, query), 3, 0, -1)
    steps.typed(probabilities, query)
    if condition is not None and may_be_blind:
        probabilities = steps.op("Where", condition, probabilities, steps.number(0.0, query), role="seen")
        steps.typed(probabilities, query)
    result = steps.typed(steps.op("MatMul", probabilities, value, role="values"), query)
    return result, Scores(raw, capped, added, biased, probabilities, condition)


def _column(steps: Steps, sink: Any, scores: Any) -> Any:
    """The score of the sink for every query, as (batch, heads, queries, 1)."""
    sizes = steps.slice(steps.op("Shape", scores), 0, 0, 3)
    return steps.typed(steps.op("Expand", sink, steps.op("Concat", sizes, steps.ints(1), attrs={"axis": 0})), scores)


def seen_by_place(steps: Steps, window: Window, queries: Size, keys: Size, first: Size, lengths: Any = None) -> Any:
    """Which keys (batch, 1, queries, keys) may be seen: an array where all sizes are known, a tensor, or None for all.

    `first` is the place of the first query among the keys, a number or a tensor of (batch, 1, 1, 1) or one number.
    `lengths` says for each of the batch how many keys there are.
    """
    if window.open and lengths is None:
        return None
    ask = np.asarray(0)
    if isinstance(queries, int) and isinstance(keys, int) and isinstance(first, int) and lengths is None:
        ahead = np.arange(keys)[None, :] - np.arange(queries)[:, None] - first
        ask = np.ones_like(ahead, bool)
        if window.causal:
            ask &= ahead <= 0
        if window.left >= 0:
            ask &= ahead >= -window.left
        if window.right >= 0:
            ask &= ahead <= window.right
        return ask
    places = _tensor(steps, steps.counting(keys))
    parts: list[Any] = []
    if not window.open:
        own = steps.reshape(_tensor(steps, steps.counting(queries)), -1, 1)
        own = steps.op("Add", own, steps.tensor(first), role="places")
        if window.causal:
            parts.append(steps.op("LessOrEqual", places, own))
        if window.left >= 0:
            parts.append(steps.op("GreaterOrEqual", places, steps.op("Sub", own, steps.tensor(window.left))))
        if window.right >= 0:
            parts.append(steps.op("LessOrEqual", places, steps.op("Add", own, steps.tensor(window.right))))
    if lengths is not None:
        parts.append(steps.op("Less", places, lengths))
    return both(steps, *parts)


def both(steps: Steps, *parts: Any) -> Any:
    """What all boolean tensors, arrays or Nones allow."""
    given = [part for part in parts if part is not None]
    if not given:
        return None
    result = given[0]
    for part in given[1:]:
        if isinstance(result, np.ndarray) and isinstance(part, np.ndarray):
            result = result & part
        else:
            result = steps.op("And", _tensor(steps, result), _tensor(steps, part))
    return result


def _tensor(steps: Steps, values: Any) -> Any:
    return steps.constant(values, "places") if isinstance(values, np.ndarray) else values


def head_size(steps: Steps, query: Any, heads: int | None = None) -> int:
    """The size of a head, from the last axis of a query whose heads are apart (`heads` None) or together."""
    width = (steps.graph.shape(query) or (None,))[-1]
    if not isinstance(width, int):
        raise Declined(f"the last size of '{query.name}' is not known")
    return width if heads is None else width // heads


def default_scale(given: float | None, size: int) -> float:
    return given if given else 1 / math.sqrt(size)
