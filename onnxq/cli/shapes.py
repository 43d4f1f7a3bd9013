"""Shapes of inputs as options give them: NAME=1,3,320,320 or NAME=1x3x320x320."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxq.errors import ConfigError

if TYPE_CHECKING:
    from onnxq.graph import Graph

Shape = tuple[int | str, ...]

_BY_X = re.compile(r"\d+(x\d+)+")


def read_shapes(texts: Sequence[str] | None, graph: Graph) -> dict[str, Shape] | None:
    """Input -> its shape; the name may be left out where the model has one input.

    A size that is a name stays free, and a placeholder such as "?" is what the model has there.
    """
    if not texts:
        return None
    shapes: dict[str, Shape] = {}
    for text in texts:
        name, equals, sizes = (part.strip() for part in text.rpartition("="))
        if not equals:
            if len(graph.input_names) != 1:
                raise ConfigError(
                    f"--shape '{text}': say of which input, NAME={text}. The model has: {', '.join(graph.input_names)}"
                )
            name = graph.input_names[0]
        if name in shapes:
            raise ConfigError(f"--shape: input '{name}' has two shapes, give one of them")
        shapes[name] = tuple(_size(part, text) for part in _parts(sizes))
    return shapes


def _parts(sizes: str) -> list[str]:
    if not sizes.strip():
        return []
    return sizes.split("x") if _BY_X.fullmatch(sizes.strip()) else sizes.split(",")


def _size(part: str, text: str) -> int | str:
    part = part.strip()
    if not part:
        raise ConfigError(f"--shape '{text}': a size is missing; write NAME=1,3,320,320")
    return int(part) if re.fullmatch(r"-?\d+", part) else part
