"""What a zoo case is, and the registry that the builders file themselves in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx

Feeds = list[dict[str, np.ndarray]]


@dataclass(frozen=True)
class Case:
    """A float model, samples for it, and what quantizing it must give.

    minimum_db            lowest SQNR accepted for any float output, over all samples together
    expect                "quantized", "refused" (a clear error), or "either"
    min_quantized         nodes that have to end up quantized; 0 demands a warning instead
    exact_outputs         outputs that quantization does not touch: equal bit for bit
    error_mentions        words of which a refusal must contain at least one
    runs_in_onnxruntime   False where onnxruntime itself cannot run the float model
    notes                 what is hostile about it
    """

    model: onnx.ModelProto
    feeds: Feeds
    minimum_db: float = 30.0
    expect: Literal["quantized", "refused", "either"] = "quantized"
    min_quantized: int = 1
    exact_outputs: tuple[str, ...] = ()
    error_mentions: tuple[str, ...] = ()
    runs_in_onnxruntime: bool = True
    notes: str = ""


def runnable(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without node names: ONNX allows twins among them, onnxruntime does not."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        node.name = ""
    return copy


Builder = Callable[[], Case]
ZOO: dict[str, Builder] = {}


def register(builder: Builder, name: str | None = None) -> Builder:
    """File a builder under its function name, or under `name` for members of a family."""
    name = name or builder.__name__
    if name in ZOO:
        raise ValueError(f"two zoo cases are called '{name}'")
    ZOO[name] = builder
    return builder
