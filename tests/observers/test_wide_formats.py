"""Formats of very many levels: the search for the least squared error takes no more memory than for few."""

import subprocess
import sys

import numpy as np
import pytest

from onnxq.observers import HistogramStatistic, make_observer
from onnxq.types import PerChannel, QuantSpec

WIDE = [
    QuantSpec("int32"),
    QuantSpec("int32", power_of_two=True),
    QuantSpec("int32", rounding="floor"),
    QuantSpec("int32", quant_min=-(2**23), quant_max=2**23 - 1),
]

SEARCH = """
import resource
import numpy as np
from onnxq.observers import make_observer, observe_constant
from onnxq.types import PerChannel, QuantSpec

array = np.random.default_rng(0).normal(size=(20, 500)).astype(np.float32)
observe_constant(array, make_observer("mse"), QuantSpec("int8"))
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 2**28, held + 2**28))
for name in ("mse", "ema_mse", "min_mse"):
    for spec in (QuantSpec("int32"), QuantSpec("int32", granularity=PerChannel(0)), QuantSpec("int16")):
        print(name, observe_constant(array, make_observer(name), spec).scale.size)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited in the way of Linux")
def test_searching_in_32_bits_takes_less_than_256_megabytes():
    """A list of all 2^31 steps would take 17 GB."""
    done = subprocess.run([sys.executable, "-c", SEARCH], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.split() == [
        word for name in ("mse", "ema_mse", "min_mse") for size in ("1", "20", "1") for word in (name, size)
    ]


@pytest.mark.parametrize("spec", WIDE, ids=str)
@pytest.mark.parametrize("name", ["mse", "min_mse", "ema_mse"])
def test_nothing_is_clipped_where_rounding_costs_nothing(name, spec):
    """Shrinking the range of n values by a share d saves less than d n / 6 N^2 of the largest square and costs d^2.

    N is 2^23 or more: below a trillion values no shrinking that a histogram can tell (0.8 %) pays.
    """
    generator = np.random.default_rng(1)
    for array in (generator.normal(size=3000), generator.standard_t(3, 3000), np.abs(generator.normal(size=3000))):
        values = array.astype(np.float32)
        observer = make_observer(name)
        statistic = observer.new_statistic(None, spec)
        statistic.update(values)
        low, high = observer.range(statistic, spec)
        assert max(-low, high) >= np.abs(values).max()


@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_rows_of_wide_formats_are_searched_apart(dtype):
    array = np.random.default_rng(2).standard_t(3, (21, 300)).astype(np.float32)
    together = HistogramStatistic(0)
    together.update(array)
    lows, highs = make_observer("mse").range(together, QuantSpec(dtype, granularity=PerChannel(0)))
    for row, values in enumerate(array):
        alone = HistogramStatistic()
        alone.update(values)
        assert make_observer("mse").range(alone, QuantSpec(dtype)) == (lows[row], highs[row])
