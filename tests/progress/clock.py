"""A clock that goes when it is told to, for tests that must not depend on how busy a machine is."""

from __future__ import annotations


class FakeClock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time

    def pass_by(self, seconds: float) -> None:
        self.time += seconds
