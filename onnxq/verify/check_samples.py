"""CheckSamples: the samples that two models are compared on, and how they are run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from onnxq.runtime.feeds import Feed
from onnxq.verify.pace import ONE_BY_ONE, Pace


@dataclass(frozen=True)
class CheckSamples:
    """The first `count` feeds of some.

    numbers  those that the feeds have in their dataset, where they are a part of it
    pace     how many of them are run at the same time
    """

    feeds: Iterable[Feed]
    count: int = 8
    numbers: Sequence[int] | None = None
    pace: Pace = ONE_BY_ONE

    def __iter__(self) -> Iterator[Feed]:
        return islice(self.feeds, self.count)

    def number(self, index: int) -> int:
        """What a feed is called by, for users."""
        return index if self.numbers is None else self.numbers[index]


def check_samples(given: CheckSamples | Iterable[Feed] | None) -> CheckSamples:
    """Samples as they are, feeds as samples, or none."""
    return given if isinstance(given, CheckSamples) else CheckSamples(() if given is None else given)
