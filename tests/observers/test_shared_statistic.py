"""One histogram of a tensor serves every observer of values and every format, and is not changed by being read."""

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.observers import HistogramStatistic, make_observer
from onnxq.types import PerChannel, QuantSpec

OBSERVERS = [
    "minmax",
    "absmax",
    "percentile",
    "mse",
    "kl",
    "clip_std",
    "lsq",
    "lsq_plus",
    "aciq",
    "octav",
    "no_overflow",
    "min_mse",
    "min_kl",
    "percentile_position",
    "minmax_floor",
]
INTEGERS_ONLY = ("kl", "min_kl", "lsq", "lsq_plus", "aciq", "octav")

BITS = (2, 3, 4, 5, 6, 7, 8, 16)
FORMATS = [
    *(QuantSpec(f"int{bits}", power_of_two=power) for bits in BITS for power in (False, True)),
    *(QuantSpec(f"uint{bits}", symmetric=symmetric) for bits in BITS for symmetric in (False, True)),
    QuantSpec("uint8", symmetric=False, power_of_two=True),
    QuantSpec("fp8_e4m3"),
    QuantSpec("fp8_e5m2"),
    QuantSpec("fp8_e4m3", power_of_two=True),
]

CHANNELS, SAMPLES = 3, 4


def samples() -> list[np.ndarray]:
    """A heavy tail, rectified values and values far from zero, one channel each."""
    generator = np.random.default_rng(8)
    values = generator.standard_t(4, (SAMPLES, CHANNELS, 100)).astype(np.float32)
    values[:, 1] = np.maximum(values[:, 1], 0.0)
    values[:, 2] = 1e-3 * values[:, 2] + 1.0
    return list(values[:, None])


def collected(observer, axis, spec):
    statistic = observer.new_statistic(axis, spec)
    for number, values in enumerate(samples()):
        statistic.update(values, number)
    return statistic


def content(statistic):
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in statistic.to_arrays().items()}


@pytest.fixture(scope="module", params=[None, 1], ids=["per tensor", "per channel"])
def shared(request):
    statistic = HistogramStatistic(request.param)
    for number, values in enumerate(samples()):
        statistic.update(values, number)
    return statistic


@pytest.mark.parametrize("name", OBSERVERS)
def test_a_shared_histogram_gives_what_one_of_its_own_gives(name, shared):
    """Whatever was evaluated on it before: other observers and formats leave every byte as it is."""
    observer, before = make_observer(name), content(shared)
    axis = shared.axis
    for plain in FORMATS:
        spec = plain if axis is None else plain.replace(granularity=PerChannel(axis))
        if not spec.evenly_spaced and name in INTEGERS_ONLY:
            with pytest.raises(UnsupportedError, match=name):
                observer.range(shared, spec)
            continue
        own = collected(observer, axis, spec)
        mine, its = observer.range(shared, spec), observer.range(own, spec)
        assert [end.tobytes() for end in mine] == [end.tobytes() for end in its], spec
    assert content(shared) == before


def test_the_formats_do_differ():
    """So that equal parameters mean something."""
    statistic = collected(make_observer("mse"), None, QuantSpec("int8"))
    for name in ("mse", "kl", "octav", "aciq", "lsq"):
        highest = {float(make_observer(name).range(statistic, QuantSpec(f"int{bits}"))[1]) for bits in (2, 3, 4, 8)}
        assert len(highest) == 4, name
