"""A tensor as parts along one of its axes, as a Concat joins them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST_PARTS = 8
"""More parts than a detector has kinds of results are steps or levels, of one kind."""


@dataclass(frozen=True)
class Join:
    """Parts along an axis; `ends` has the index behind the last one of each."""

    axis: int
    ends: tuple[int, ...]

    def cut(self, values: np.ndarray) -> list[np.ndarray] | None:
        """The parts of a tensor; None where it has another length than the graph says."""
        if values.ndim <= self.axis or values.shape[self.axis] != self.ends[-1]:
            return None
        return np.split(values, self.ends[:-1], self.axis)

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """First index of each part, and the one behind its last."""
        return list(zip((0, *self.ends), self.ends, strict=False))

    def labels(self, name: str) -> list[str]:
        """What to call the parts of an output, as numpy would be asked for them."""
        before = ":, " * self.axis
        return [f"{name}[{before}{start}:{end}]" for start, end in self.stretches]
