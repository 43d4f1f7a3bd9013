"""The memory that collecting takes does not grow with the number of samples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import numpy as np
from onnxq.observers import HistogramStatistic, RangeStatistic
from onnxq.runtime.collect import Engine, collect
from tests.runtime.test_collect import ACTIVATIONS, convolutions

class Images:
    '''Made when they are asked for, and of different magnitudes, so that histograms find new values to the end.'''
    def __iter__(self):
        for number in range(int(sys.argv[1])):
            random = np.random.default_rng(number)
            yield {"x": (random.normal(size=(1, 3, 48, 48)) * random.uniform(0.2, 3)).astype(np.float32)}

kinds = {"range": RangeStatistic, "histogram": HistogramStatistic}
statistics = {name: [kinds[sys.argv[2]]()] for name in ACTIVATIONS}
report = collect(convolutions(), Images(), statistics, engine=Engine(workers=2))
assert report.samples == int(sys.argv[1])
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"):
        print(line.split()[1])
"""


def peak_kilobytes(samples: int, kind: str) -> int:
    root = str(Path(__file__).parents[2])
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(samples), kind],
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("kind", ["range", "histogram"])
def test_sixteen_times_the_samples_take_the_same_memory(kind: str) -> None:
    few, many = peak_kilobytes(64, kind), peak_kilobytes(1024, kind)
    assert many <= 1.05 * few, f"{few} kB for 64 samples, {many} kB for 1,024"
