"""How samples are split: those that methods are fitted to, those held out, those that written files are checked on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from onnxq.ptq.method import Samples
from onnxq.runtime import Dataset

FEWEST = 4
"""Fewer samples than this cannot be split."""

MOST_HELD, MOST_FITTED = 32, 512
"""More samples than these would cost time and change little."""

ENOUGH = 16
"""Samples that a figure should come from: where a few of many carry the noise, eight often have none of them. A
classifier of files had 35 dB on eight of its sixteen samples, 5.5 dB on all, and 2.4 dB on others."""

SURE = 32
"""Samples that decide together where fewer leave doubt. In 60 trials on ten models the gain on eight held-out samples
had the sign of that on 64 others in 38, the gain on these and 24 fitted ones in 50."""


@dataclass(frozen=True)
class SampleSplit:
    """The `count` samples of a calibration: some that methods are fitted to, others by which results are compared."""

    fitted: Samples
    held_out: Samples
    count: int

    def in_parts(self) -> tuple[Samples, Samples]:
        """The fitted samples, which ranges of trials are found on, and all others."""
        apart = set(self.fitted.numbers)
        others = tuple(number for number in range(self.count) if number not in apart)
        return self.fitted, replace(self.fitted, numbers=others)

    def evaluated(self) -> list[Samples]:
        """What results are compared on: the samples held out, then as many of the others, then more, while in doubt."""
        held, numbers = len(self.held_out), self.fitted.numbers
        first = max(held, ENOUGH - held)
        parts = (numbers[:first], numbers[first : max(first, SURE - held)])
        return [self.held_out, *(replace(self.fitted, numbers=part) for part in parts if part)]


def split_samples(dataset: Dataset) -> SampleSplit | None:
    """Every fourth sample is held out, every second of fewer than 16; None where there are too few."""
    count = dataset.length
    count = sum(1 for _ in dataset) if count is None else count
    if count < FEWEST:
        return None
    every = 4 if count >= 16 else 2
    held = tuple(number for number in range(count) if number % every == every - 1)[:MOST_HELD]
    apart = set(held)
    fitted = tuple(number for number in range(count) if number not in apart)[:MOST_FITTED]
    return SampleSplit(Samples(dataset, fitted), Samples(dataset, held), count)


def verification_samples(dataset: Dataset, most: int) -> Samples:
    """The samples on which what is written is checked, the same for every effort.

    They are those held out, and others only where these are fewer than ENOUGH.
    """
    split = split_samples(dataset)
    if split is None:
        numbers = tuple(number for number, _ in enumerate(islice(dataset, min(most, FEWEST))))
    else:
        held, fitted = split.held_out.numbers, split.fitted.numbers
        numbers = (*held, *fitted[: max(0, ENOUGH - len(held))])[:most]
    return Samples(dataset, tuple(sorted(numbers)))
