"""What makes tests mean the same on every machine.

They run side by side, one process per core: torch gets one thread in each, as long as nobody says otherwise. hypothesis
generates the same examples everywhere, and does not take a busy machine for a fault. What is written is not timed:
tests of that bring the times that they need.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile(
    "every machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("every machine")

pytest_plugins = ["tests.cpu_time", "tests.time_limit"]


@pytest.fixture(autouse=True)
def _nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.pipeline.written.measured_speed", lambda *given: None)
