"""`--slowest-files N`: the CPU seconds of each test file, the most expensive first.

CPU time of the process and of those that it waited for: it means the same on a busy machine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

PROPERTY = "cpu_seconds"


def spent() -> float:
    """CPU seconds of this process and of its children so far."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class CpuTime:
    """Adds up what the tests of a file take, in whichever process they run."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._files: Counter[str] = Counter()
        self._cases: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
        report = yield
        now = spent()
        report.user_properties = [(PROPERTY, now - item.stash.get(_BEGAN, now))]
        item.stash[_BEGAN] = now
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.stash[_BEGAN] = spent()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._files[file] += sum(value for name, value in report.user_properties if name == PROPERTY)
        self._cases[file] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section(f"{self._most} slowest files of {len(self._files)}, CPU seconds")
        for file, seconds in self._files.most_common(self._most):
            terminalreporter.line(f"{seconds:8.1f}  {self._cases[file]:5d} tests  {file}")
        terminalreporter.line(f"{sum(self._files.values()):8.1f}  {sum(self._cases.values()):5d} tests  all")


_BEGAN = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slowest-files", type=int, metavar="N", help="show the N files that take most CPU seconds")


def pytest_configure(config: pytest.Config) -> None:
    most = config.getoption("--slowest-files")
    if most:
        config.pluginmanager.register(CpuTime(most))
