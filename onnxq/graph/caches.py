"""Keys and values that a decoder is given and returns: past_key_values.N.key -> present.N.key, as exporters name them.

What is returned for the next step is no result of its own: whoever compares models by their results leaves it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from onnxq.graph.graph import Graph

_PAST = re.compile(r"past(?:_key_values)?[._](.+)")
_PRESENTS = ("present.{}", "present_{}", "present_key_values.{}")
AXES = 4
"""Batch, heads, tokens, head size."""


def continued_by(past: str, outputs: Iterable[str]) -> str | None:
    """The output that continues an input, by their names."""
    match, known = _PAST.fullmatch(past), set(outputs)
    made = [name.format(match[1]) for name in _PRESENTS if name.format(match[1]) in known] if match else []
    return made[0] if made else None


def caches(graph: Graph) -> dict[str, str]:
    """Input -> the output that is its continuation, of all that have the shape of keys and values."""
    outputs = graph.output_names
    found = {name: continued_by(name, outputs) for name in graph.input_names if len(graph.shape(name) or ()) == AXES}
    return {past: present for past, present in found.items() if present is not None}
