"""What channels hold on the samples does not depend on which of them were looked at first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxq.ptq.equalization.channel_statistics import ChannelLook
from onnxq.ptq.equalization.scalable_channels import find_scalable_channels
from onnxq.ptq.equalization.smoothquant import look_at
from onnxq.ptq.method import Findings, Samples
from tests.ptq.calibrated import Ready, digits


def look(ready: Ready) -> ChannelLook:
    return look_at(ready.state, ready.task, find_scalable_channels(ready.state.graph))


def seen(ready: Ready, *first: Samples) -> Sequence[np.ndarray]:
    """The rows and ranges of all samples, behind those of some."""
    own = look(ready)
    for samples in first:
        own.ranges(samples)
    rows, ranges = own.rows(ready.task.samples), own.ranges(ready.task.samples)
    assert rows
    assert ranges
    return [*rows.values(), *(part for found in ranges.values() for part in (found.low, found.high))]


def test_rows_are_the_same_in_whatever_order_samples_are_seen() -> None:
    ready = digits("onnxruntime")
    samples = ready.task.samples
    behind_some = seen(ready, samples.first(3), Samples(samples.dataset, samples.numbers[::2]))
    for one, other in zip(seen(ready), behind_some, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_was_found_out_serves_the_same_method_on_the_same_state_alone() -> None:
    state, found = digits("onnxruntime").state, Findings()
    made: list[str] = []

    def find(what: str) -> str:
        return found.of(state, what, lambda: made.append(what) or what)  # type: ignore[func-returns-value]

    find("before any method began")
    found.begin(state, "a")
    find("a")
    found.begin(state, "a")
    find("a")
    found.begin(state, "b")
    find("a")
    found.begin(state.copy(), "b")
    find("a")
    assert made == ["before any method began", "a", "a", "a"]
