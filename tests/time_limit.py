"""`--most-seconds N`: tests that have not begun N seconds after the start are skipped, with that reason."""

from __future__ import annotations

import time

import pytest


class TimeLimit:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.monotonic() > self._end:
            pytest.skip(f"not begun within {self._seconds:.0f} seconds")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--most-seconds", type=float, metavar="N", help="skip what has not begun after N seconds")


def pytest_configure(config: pytest.Config) -> None:
    seconds = config.getoption("--most-seconds")
    if seconds:
        config.pluginmanager.register(TimeLimit(seconds))
