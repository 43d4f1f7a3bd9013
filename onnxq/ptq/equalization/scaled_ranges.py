"""What calibration would see of a graph whose channels are scaled, without running it: ranges divide as values do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from onnxq.calibrate import activation_leaders
from onnxq.calibrate.channels_by_sample import Channels
from onnxq.calibrate.gather import Gathered, statistic_key, with_observers
from onnxq.observers import RangeStatistic
from onnxq.observers.statistics.range import two_largest
from onnxq.ptq.equalization.channel_statistics import ChannelRanges
from onnxq.ptq.equalization.scalable_channels import ScalableChannels
from onnxq.ptq.method import Samples, State, Task
from onnxq.types import PerTensor

RangesOf = Callable[[Samples], Mapping[str, ChannelRanges]]
"""Ranges of the channels of tensors on some samples, before they are scaled."""


def tell_scaled(
    before: State,
    after: State,
    task: Task,
    scalable: ScalableChannels,
    ranges_of: RangesOf,
    scales: np.ndarray,
    made: Mapping[str, str] | None = None,
) -> None:
    """Tell the statistics of the task what ranges `after` has, where they follow from those of `before`.

    `after` is `before` with its channels divided by `scales`. `made` has each tensor that `before` lacks with the one
    there that has its values as long as nothing is scaled. Nothing is told where observers look at more than the range,
    where channels of a tensor are not known, or where no statistics are kept.
    """
    statistics, source = task.statistics, made or {}
    leaders, leaders_before = (activation_leaders(state.plan) for state in (after, before))
    if statistics is None or any(observer.statistic != "range" for _, observer in with_observers(leaders)):
        return
    divided = {
        name
        for leader in leaders
        for name in leader.observe
        if name in scalable.layouts and (scales[scalable.layouts[name]] != 1.0).any()
    }
    known = ranges_of(task.samples)
    whole = all(isinstance(item.spec.granularity, PerTensor) for item in leaders if divided & set(item.observe))
    some = statistics.on_some(before.graph, leaders_before, reusable=False)
    if some is None or not whole or not divided <= known.keys():
        return

    def told(part: Gathered, ranges: Mapping[str, ChannelRanges]) -> Gathered:
        found: dict[str, dict[str, RangeStatistic]] = {}
        for leader, observer in with_observers(leaders):
            for name in leader.observe:
                held = part.find(source.get(name, name), observer, leader.spec)
                seen = _of_divided(ranges[name], scales) if name in divided else held
                found.setdefault(name, {})[statistic_key(observer, leader.spec, leader.tensor)] = seen
        return replace(part, statistics=found)

    def of_others() -> Gathered:
        part = statistics.on_others(before.graph, leaders_before, reusable=False)
        assert part is not None  # as that on the others is there
        return told(part, ranges_of(replace(task.samples, numbers=statistics.others.numbers)))

    channels = _channels_of_divided(statistics.channels_of(before.graph), scalable, scales, source)
    statistics.know(after.graph, leaders, told(some, known), of_others, channels)


def _channels_of_divided(
    before: Channels, scalable: ScalableChannels, scales: np.ndarray, source: Mapping[str, str]
) -> Channels:
    """What is known of the channels of each tensor, by its own name and by those of `source`, after the division."""
    found = {}
    for name, layout in scalable.layouts.items():
        seen = before.get(source.get(name, name))
        if seen is not None and seen.axis is not None and layout.size == layout.shape[seen.axis]:
            own = scales[layout.ravel()]
            found[name] = seen if (own == 1.0).all() else seen.divided(own)
    return found


def _of_divided(seen: ChannelRanges, scales: np.ndarray) -> RangeStatistic:
    """The range of a tensor whose channels were divided."""
    own, found = scales[seen.classes], RangeStatistic()
    found.update(np.array([(seen.low / own).min(), (seen.high / own).max()], np.float32))
    found.peaks = two_largest(tuple((float((seen.by_sample[n] / own).max()), n) for n in sorted(seen.by_sample)))
    return found
