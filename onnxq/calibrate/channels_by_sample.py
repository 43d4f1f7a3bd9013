"""What the channels of a tensor hold in each sample, seen on the way while calibration runs the model.

Methods that scale channels need to know, of parts of the samples, the smallest and the largest value of each channel.
One pass over all samples is enough for every part; only what each channel came to in a sample is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from onnxq.graph import Graph
from onnxq.observers import RangeStatistic
from onnxq.observers.statistics.range import Extent
from onnxq.types import QuantPlan

MOST_BYTES = 2**28
"""What all channels may take together; with more samples than that allows, they are looked at when somebody asks."""

BYTES_OF_CHANNEL = 16
"""Of a channel in one sample: both ends and how many values there are."""


class ChannelsBySample(RangeStatistic):
    """The extent of each index along `axis`, for each sample by its number."""

    def __init__(self, axis: int, seen: Mapping[int, Extent] | None = None) -> None:
        super().__init__(axis)
        self.seen = dict(seen or {})

    def look(self, array: np.ndarray, sample: int = 0, *, batch: int = 1) -> Any:
        found = super().look(array, sample, batch=batch)
        return None if found is None else (sample, found)

    def add(self, partial: tuple[int, Extent]) -> None:
        self.seen[partial[0]] = partial[1]

    def divided(self, scales: np.ndarray) -> ChannelsBySample:
        """The same of a tensor whose channels were divided by `scales`, all of them positive."""
        own = {}
        for sample, extent in self.seen.items():
            low, high = ((end / scales).astype(np.float32) for end in (extent.low, extent.high))
            own[sample] = replace(extent, low=low, high=high, peaks=())
        assert self.axis is not None
        return ChannelsBySample(self.axis, own)


Channels = Mapping[str, ChannelsBySample]
"""Tensor -> its channels."""

WantedChannels = Callable[[Graph, QuantPlan], Mapping[str, int]]
"""Tensor -> the axis of its channels, for those of which a later step is going to ask."""


def empty_channels(graph: Graph, axes: Mapping[str, int], samples: int) -> Channels:
    """What a pass over so many samples is to fill; nothing where that would be too much."""
    count = 0
    for name, axis in axes.items():
        shape = graph.shape(name)
        length = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
        if not isinstance(length, int):
            return {}
        count += length
    if count * BYTES_OF_CHANNEL * samples > MOST_BYTES:
        return {}
    return {name: ChannelsBySample(axis) for name, axis in axes.items()}
