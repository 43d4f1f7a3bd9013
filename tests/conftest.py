"""Tests run side by side, one process per core: torch gets one thread in each, as long as nobody says otherwise."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

pytest_plugins = ["tests.cpu_time", "tests.time_limit"]
