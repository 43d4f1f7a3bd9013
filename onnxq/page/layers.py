"""Noise layer by layer: float and quantized model side by side on a few samples, within a bound of memory.

accumulated   the error of everything up to a tensor, between the two models
own           what the tensor's own quantizer makes of the float values, all before it being exact
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.numerics import SqnrAccumulator, fake_quantize
from onnxq.page.histogram import MOST_VALUES, Histogram
from onnxq.page.numbers import short
from onnxq.runtime.feeds import Feed
from onnxq.runtime.tap import Tap, default_memory_limit, memory_groups
from onnxq.types import QParams, QParamsTable

SAMPLES, SAMPLES_OF_A_RUN = 2, 1
"""Samples that are compared: layers differ by decibels, samples hardly. At the end of a run that quantizes it is one:
each takes as much as a step of the search."""


@dataclass
class _Sums:
    """One tensor over all samples."""

    accumulated: SqnrAccumulator = field(default_factory=SqnrAccumulator)
    own: SqnrAccumulator | None = None
    histogram: Histogram | None = None
    clipped: int = 0
    values: int = 0

    def to_json(self) -> JsonObject:
        data: JsonObject = {}
        if self.accumulated.compared:
            data["sqnr_db"] = short(self.accumulated.value)
            data["cosine"] = short(self.accumulated.cosine, 7)
        if self.own is not None:
            data["own_db"] = short(self.own.value)
            data["clipped"] = short(self.clipped / max(self.values, 1), 3)
        if self.histogram is not None:
            data["histogram"] = self.histogram.to_json()
        return data


@dataclass(frozen=True)
class Layers:
    """`tensors` in the form of the page; `shapes` are those of the first sample."""

    samples: tuple[int, ...]
    tensors: dict[str, JsonObject]
    shapes: dict[str, tuple[int, ...]]

    def to_json(self, against: str) -> JsonObject:
        """`against` says what the quantized model was compared with."""
        return {"samples": list(self.samples), "against": against, "tensors": self.tensors}


def measure_layers(
    original: Graph,
    quantized: Graph,
    qparams: QParamsTable,
    feeds: Sequence[Feed],
    numbers: Sequence[int],
    *,
    memory_limit_bytes: int | None = None,
) -> Layers:
    """Noise, shape and histogram of every float tensor of the main graph; `numbers` are those of the samples."""
    computed = list(dict.fromkeys(_computed(original)))
    made = {str(tensor.name) for node in quantized.gs.nodes for tensor in node.outputs}
    sums = {name: _Sums() for name in (*original.input_names, *computed)}
    shapes: dict[str, tuple[int, ...]] = {}
    limit = (default_memory_limit() if memory_limit_bytes is None else memory_limit_bytes) // 2
    for group in memory_groups(original, computed, feeds[0], limit):
        shared = [name for name in group if name in made]
        one = Tap(original, group, optimize="basic", threads=1)
        other = Tap(quantized, shared, optimize="none", threads=1)
        for number, feed in zip(numbers, feeds, strict=True):
            expected, measured = one.run(feed, f"sample {number}"), other.run(feed, f"sample {number}")
            for name in group:
                if isinstance(expected.get(name), np.ndarray):
                    shapes.setdefault(name, expected[name].shape)
                    _add(sums[name], expected[name], measured.get(name), qparams.entries.get(name))
    for feed in feeds:
        for name, array in feed.items():
            shapes.setdefault(name, array.shape)
            if name in sums:
                _add(sums[name], array, None, qparams.entries.get(name))
    found = {name: data for name, total in sums.items() if (data := total.to_json())}
    return Layers(tuple(numbers), found, shapes)


def _computed(graph: Graph) -> list[str]:
    """Float tensors that nodes of the main graph make."""
    return [
        str(tensor.name)
        for node in graph.gs.nodes
        if node.op != "Constant"
        for tensor in node.outputs
        if tensor.name and ((dtype := graph.dtype(tensor)) is None or dtype.kind == "f")
    ]


def _add(sums: _Sums, expected: np.ndarray, measured: object, held: QParams | None) -> None:
    if expected.dtype.kind != "f" or not expected.size:
        return
    if isinstance(measured, np.ndarray) and measured.shape == expected.shape and measured.dtype.kind == "f":
        sums.accumulated.add(expected, measured)
    if held is None or held.scale.ndim or not held.spec.has_scale:
        return
    histogram = Histogram.of(expected)
    if histogram is not None and sums.histogram is not None:
        sums.histogram.add(histogram)
    elif histogram is not None:
        sums.histogram = histogram
    flat = expected.reshape(-1)
    part = flat[:: max(1, flat.size // MOST_VALUES)].astype(np.float32)
    low, high = clip_lines(held)
    step = float(held.scale)
    sums.clipped += int(np.count_nonzero((part < low - 0.5 * step) | (part > high + 0.5 * step)))
    sums.values += part.size
    sums.own = sums.own or SqnrAccumulator()
    sums.own.add(part, fake_quantize(part, held))


def clip_lines(held: QParams) -> tuple[float, float]:
    """The lowest and the highest number that a tensor with one scale can hold."""
    low, high = held.spec.ends
    scale, zero = float(held.scale.reshape(-1)[0]), float(held.zero_point.reshape(-1)[0])
    return (low - zero) * scale, (high - zero) * scale
