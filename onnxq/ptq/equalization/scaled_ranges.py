"""What calibration would see of a graph whose channels are scaled, without running it: ranges divide as values do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from onnxq.calibrate import activation_leaders
from onnxq.calibrate.gather import Gathered
from onnxq.observers import RangeStatistic
from onnxq.ptq.equalization.channel_statistics import ChannelRanges
from onnxq.ptq.equalization.scalable_channels import ScalableChannels
from onnxq.ptq.method import State, Task
from onnxq.types import PerTensor


def seen_when_scaled(
    state: State, task: Task, scalable: ScalableChannels, ranges: Mapping[str, ChannelRanges], scales: np.ndarray
) -> Gathered | None:
    """The statistics of the fitted samples for the state with its channels divided by `scales`.

    None where they do not follow from those before: observers that look at more than the range, ranges of channels
    that nobody has looked at, statistics that are not kept.
    """
    leaders = activation_leaders(state.plan)
    if task.statistics is None or any(leader.observer != "minmax" for leader in leaders):
        return None
    changed: dict[str, RangeStatistic] = {}
    for leader in leaders:
        for name in leader.observe:
            layout, seen = scalable.layouts.get(name), ranges.get(name)
            if layout is None or (scales[layout] == 1.0).all():
                continue
            if seen is None or not isinstance(leader.spec.granularity, PerTensor):
                return None
            own = scales[seen.classes]
            changed[name] = RangeStatistic()
            changed[name].update(np.array([(seen.low / own).min(), (seen.high / own).max()], np.float32))
    before = task.statistics.on_some(state.graph, leaders)
    if before is None:
        return None
    statistics = {
        name: dict.fromkeys(kinds, changed[name]) if name in changed else kinds
        for name, kinds in before.statistics.items()
    }
    return replace(before, statistics=statistics)
