"""Every observer with every number format, per tensor and per channel: a usable scale or a refusal that helps."""

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.numerics.affine import fake_quantize
from onnxq.observers import OBSERVERS, make_observer, observe_constant, qparams
from onnxq.types import PerChannel, QuantSpec

INTEGERS = [
    QuantSpec(f"{sign}int{bits}", symmetric=symmetric)
    for sign in ("", "u")
    for bits in (1, 2, 4, 7, 16)
    for symmetric in (True, False)
]
OTHERS = [
    QuantSpec("int8", narrow_range=True),
    QuantSpec("int8", quant_min=-64, quant_max=63),
    QuantSpec("int8", rounding="half_away"),
    QuantSpec("fp8_e4m3"),
    QuantSpec("fp8_e5m2"),
]
FORMATS = [
    *(spec.replace(power_of_two=power) for spec in (*INTEGERS, *OTHERS) for power in (False, True)),
    QuantSpec("nnie8"),
]

REFUSED = dict.fromkeys(("kl", "min_kl", "lsq", "lsq_plus", "aciq", "octav"), ("fp8_e4m3", "fp8_e5m2", "nnie8"))


@pytest.fixture(scope="module")
def values():
    generator = np.random.default_rng(11)
    values = generator.standard_t(4, (2, 4, 60)).astype(np.float32)
    values[:, 1] = np.maximum(values[:, 1], 0) * 1e-4
    values[:, 2] = 0.0
    values[:, 3] = values[:, 3] * 1e5 + 1e5
    return values


@pytest.mark.parametrize("granularity", ["per tensor", "per channel"])
@pytest.mark.parametrize("name", OBSERVERS.names())
def test_every_format_has_a_scale_or_a_reason(name, granularity, values):
    observer = make_observer(name)
    for plain in FORMATS:
        spec = plain if granularity == "per tensor" else plain.replace(granularity=PerChannel(1))
        if spec.dtype in REFUSED.get(name, ()):
            with pytest.raises(UnsupportedError, match=f"observer '{name}'.*use minmax"):
                observe_constant(values, observer, spec)
            continue
        found = observe_constant(values, observer, spec)
        assert found.scale.shape == (() if granularity == "per tensor" else (4,)), spec
        error = np.abs(fake_quantize(values, found) - values)
        assert np.isfinite(error).all(), spec
        # No value becomes larger than it was, but for rounding to the next of very few levels.
        assert error.max() <= 2.0 * np.abs(values).max(), spec
        assert np.all(error[:, 2] == 0), spec
        if spec.power_of_two:
            assert np.all(np.frexp(found.scale)[0] == 0.5), spec


@pytest.mark.parametrize("name", sorted(set(OBSERVERS.names()) - {"lsq", "lsq_plus", "clip_std", "fixed"}))
@pytest.mark.parametrize("spec", [QuantSpec("int8"), QuantSpec("uint8", symmetric=False)], ids=str)
def test_eight_bits_keep_most_of_a_signal(name, spec):
    values = np.random.default_rng(2).normal(size=20_000).astype(np.float32)
    found = fake_quantize(values, observe_constant(values, make_observer(name), spec))
    assert np.mean((found - values) ** 2) < 1e-3


@pytest.mark.parametrize("name", OBSERVERS.names())
def test_samples_one_by_one_and_a_shape_that_varies(name):
    """Sequences of different lengths are seen per tensor; nothing depends on a fixed shape."""
    observer, spec = make_observer(name), QuantSpec("int8")
    statistic = observer.new_statistic(None, spec)
    generator = np.random.default_rng(4)
    for i, length in enumerate((3, 7, 1, 20)):
        statistic.update(generator.normal(size=(1, length)).astype(np.float32), i)
    assert 0 < qparams(observer, statistic, spec).scale < 1
