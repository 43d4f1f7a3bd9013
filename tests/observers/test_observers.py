"""Observers: the ranges they choose, against numpy and against brute force on the raw values."""

import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import onnxq.observers
from onnxq.errors import ConfigError, UnsupportedError
from onnxq.numerics.affine import fake_quantize
from onnxq.numerics.ranges import qparams_from_range
from onnxq.observers import OBSERVERS, HistogramStatistic, RangeStatistic, make_observer, observe_constant, qparams
from onnxq.types import PerBlock, PerChannel, PerTensor, QuantSpec
from tests.products import each_once, pairwise

RESOLUTION = 2.0**-7
"""Relative width of a histogram bin: how exactly a value inside the range is known."""

SPECS = [
    QuantSpec("int8"),
    QuantSpec("int8", narrow_range=True),
    QuantSpec("uint8", symmetric=False),
    QuantSpec("int8", symmetric=False),
    QuantSpec("uint8"),
    QuantSpec("int4"),
    QuantSpec("uint4", symmetric=False),
    QuantSpec("int2"),
    QuantSpec("int16"),
    QuantSpec("int8", power_of_two=True),
    QuantSpec("fp8_e4m3"),
    QuantSpec("fp8_e5m2"),
]


def histogram(values, axis=None):
    statistic = HistogramStatistic(axis)
    statistic.update(values)
    return statistic


def squared_error(values, low, high, spec):
    quantized = fake_quantize(values, qparams_from_range(low, high, spec))
    return float(np.mean(np.subtract(values, quantized, dtype=np.float64) ** 2))


def laplace(count=60_000, seed=0):
    return np.random.default_rng(seed).laplace(size=count).astype(np.float32)


def relu_like(count=60_000):
    return np.maximum(np.random.default_rng(1).normal(size=count), 0).astype(np.float32)


def lopsided(count=60_000):
    values = np.random.default_rng(2).normal(0.5, 1, size=count).astype(np.float32)
    values[:3] = [40, 35, 38]
    return values


DATA = {"laplace": laplace, "relu": relu_like, "lopsided": lopsided}

INTEGERS_ONLY = ("kl", "min_kl", "lsq", "lsq_plus", "aciq", "octav")
"""Observers whose formula counts evenly spaced levels."""

SCALES_OF_THEIR_OWN = ("absmax", "lsq", "lsq_plus", "min_kl", "minmax_floor", "ema_minmax_floor", "pot_mode", "fixed")
"""Observers whose range need not end at the largest value."""


def collected(observer, values, spec, axis=None):
    statistic = observer.new_statistic(axis, spec)
    statistic.update(values)
    return statistic


@pytest.mark.parametrize("percentile", [99.999, 99.9, 99.0, 75.0, 100.0])
@pytest.mark.parametrize("data", DATA)
def test_percentile_is_within_a_bin_of_numpy(data, percentile):
    values = DATA[data]()
    observer = make_observer({"name": "percentile", "percentile": percentile})
    low, high = observer.range(histogram(values), QuantSpec("uint8", symmetric=False))
    expected = np.percentile(values.astype(np.float64), [100 - percentile, percentile])
    np.testing.assert_allclose([low, high], expected, rtol=RESOLUTION, atol=0)
    low, high = observer.range(histogram(values), QuantSpec("int8"))
    expected = np.percentile(np.abs(values.astype(np.float64)), percentile)
    np.testing.assert_allclose(max(-low, high), expected, rtol=RESOLUTION, atol=0)


def test_percentile_of_few_values_interpolates_as_numpy_does():
    values = np.array([1, 2, 4, 100], np.float32)
    for percentile in (60.0, 80.0, 99.0):
        low, high = make_observer(f"percentile:{percentile}").range(
            histogram(values), QuantSpec("uint8", symmetric=False)
        )
        np.testing.assert_allclose([low, high], np.percentile(values, [100 - percentile, percentile]), rtol=RESOLUTION)


@pytest.mark.parametrize("name", ["minmax", "ema_minmax", "percentile:100", "ema_quantile:threshold=1", "no_overflow"])
def test_the_whole_range_is_exact(name):
    values = laplace()
    observer, spec = make_observer(name), QuantSpec("uint8", symmetric=False)
    low, high = observer.range(collected(observer, values, spec), spec)
    assert (low, high) == (values.min(), values.max())


def test_minmax_works_on_what_another_observer_collected():
    values = laplace()
    low, high = make_observer("minmax").range(histogram(values), QuantSpec())
    assert (low, high) == (values.min(), values.max())


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("data", DATA)
def test_mse_is_near_the_best_of_a_brute_force_search(data, spec):
    values = DATA[data]()[:20_000]
    low, high = make_observer("mse").range(histogram(values), spec)
    assert values.min() <= low <= high <= values.max()
    found = squared_error(values, low, high, spec)
    top, bottom = float(values.max()), float(values.min())
    ends = np.geomspace(0.01, 1.0, 24 if spec.symmetric else 12)
    if spec.symmetric:
        amax = max(top, -bottom)
        best = min(squared_error(values, -amax * r, amax * r, spec) for r in ends)
    else:
        best = min(squared_error(values, bottom * a, top * b, spec) for a in ends for b in ends)
    # The histogram knows values to 0.8 %, and where both searches stop between their steps costs a little too.
    assert found <= 1.05 * best + 1e-12


@pytest.mark.parametrize("spec", [QuantSpec("int8"), QuantSpec("uint8", symmetric=False)], ids=str)
def test_a_lone_outlier_among_many_values_is_clipped(spec):
    values = np.random.default_rng(3).normal(size=400_000).astype(np.float32)
    values[0] = 1000.0
    for name, most in (("kl", 8.0), ("percentile:99.99", 5.0)):
        _, high = make_observer(name).range(histogram(values), spec)
        assert 3.0 < high < most, name
    # The mean square of clipping 50 is 2500 / 400000, far above that of rounding to steps of 50 / 127.
    values[0] = 50.0
    low, high = make_observer("mse").range(histogram(values), spec)
    assert high < 45.0
    assert low <= -3.0
    # A wide format loses nothing by keeping it.
    _, high = make_observer("mse").range(histogram(values), QuantSpec("int16"))
    assert high == 50.0


@pytest.mark.parametrize(("name", "lowest"), [("kl", -3.0), ("mse", -27.0)])
def test_an_outlier_on_one_side_leaves_the_other_alone(name, lowest):
    values = np.random.default_rng(4).uniform(-1, 1, 200_000).astype(np.float32)
    values[0] = -30.0
    low, high = make_observer(name).range(histogram(values), QuantSpec("uint8", symmetric=False))
    assert lowest < low <= -0.9
    assert high >= 0.9


def test_kl_keeps_the_range_of_evenly_spread_values():
    values = np.random.default_rng(5).uniform(0, 10, 100_000).astype(np.float32)
    low, high = make_observer("kl").range(histogram(values), QuantSpec("uint8", symmetric=False))
    assert low == 0.0
    assert high > 9.5


def test_kl_clips_fewer_bits_harder():
    values = laplace(200_000)
    highs = [float(make_observer("kl").range(histogram(values), QuantSpec(d))[1]) for d in ("int4", "int6", "int8")]
    assert highs[0] < highs[1] < highs[2]


def test_kl_takes_less_than_fifty_milliseconds():
    statistic = histogram(laplace(500_000))
    observer = make_observer("kl")
    observer.range(statistic, QuantSpec())
    best = min(_seconds(lambda: observer.range(statistic, QuantSpec())) for _ in range(3))
    assert best < 0.05


def _seconds(action):
    start = time.thread_time()
    action()
    return time.thread_time() - start


@pytest.mark.parametrize(
    ("name", "spec"), each_once(sorted(set(OBSERVERS.names()) - set(SCALES_OF_THEIR_OWN)), SPECS), ids=str
)
def test_a_constant_tensor_is_represented(name, spec):
    if name in INTEGERS_ONLY and not spec.evenly_spaced:
        return
    for value in (0.0, 3.0, -3.0, 1e-9, 1e30):
        values = np.full((2, 3), value, np.float32)
        result = observe_constant(values, make_observer(name), spec)
        if value < 0 and spec.dtype == "uint8" and spec.symmetric:
            assert np.all(fake_quantize(values, result) == 0)
        else:
            error = np.abs(fake_quantize(values, result) - values).max()
            assert error <= (0.01 if spec.power_of_two else 1e-5) * abs(value), value


@pytest.mark.parametrize("name", OBSERVERS.names())
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_formats_without_a_scale_get_the_whole_range(name, dtype):
    values = laplace(1000)
    observer = make_observer(name)
    statistic = collected(observer, values, QuantSpec(dtype))
    assert observer.range(statistic, QuantSpec(dtype)) == (values.min(), values.max())
    assert observe_constant(values, observer, QuantSpec(dtype)).scale == 1.0


@pytest.mark.parametrize("name", sorted(set(OBSERVERS.names()) - {"fixed"}))
@pytest.mark.parametrize("shift", [-20.0, 20.0])
def test_values_far_from_zero_get_a_range_in_order(name, shift):
    values = laplace(1000) + np.float32(shift)
    observer = make_observer(name)
    for spec in (QuantSpec(d, symmetric=s) for d in ("int8", "uint8", "int4") for s in (True, False)):
        low, high = observer.range(collected(observer, values, spec), spec)
        assert low <= high, spec
        if shift > 0:
            assert high > 10, spec


def test_a_fixed_range_is_taken_whatever_the_data():
    result = observe_constant(
        laplace(1000) + np.float32(20), make_observer("fixed:-1,3"), QuantSpec("uint8", symmetric=False)
    )
    assert result.scale == np.float32(4 / 255)
    assert result.zero_point == 64
    with pytest.raises(ConfigError, match="low < high"):
        make_observer("fixed:2,1")


@pytest.mark.parametrize("name", INTEGERS_ONLY)
def test_counting_levels_is_refused_for_a_floating_point_grid(name):
    with pytest.raises(UnsupportedError, match=rf"'{name}'.*fp8_e4m3 does not have: use minmax, percentile or mse"):
        make_observer(name).range(histogram(laplace(100)), QuantSpec("fp8_e4m3"))


@pytest.mark.parametrize(
    ("name", "spec", "axis"),
    pairwise(OBSERVERS.names(), [QuantSpec("int8"), QuantSpec("uint4", symmetric=False)], [0, 1, -1]),
    ids=str,
)
def test_per_channel_equals_a_loop_of_per_tensor(name, spec, axis):
    values = np.random.default_rng(6).standard_t(3, (6, 5, 40)).astype(np.float32)
    observer = make_observer(name)
    whole = observe_constant(values, observer, spec.replace(granularity=PerChannel(axis)))
    for i, channel in enumerate(np.moveaxis(values, axis, 0)):
        one = observe_constant(channel, observer, spec)
        assert whole.scale[i] == one.scale
        assert whole.zero_point[i] == one.zero_point


def test_per_block_minmax_equals_a_loop_with_a_shorter_last_block():
    values = np.random.default_rng(8).normal(size=(3, 70, 4)).astype(np.float32)
    for axis in (0, 1, 2, -2):
        spec = QuantSpec("int4", granularity=PerBlock(axis, 32 if axis in (1, -2) else 2))
        result = observe_constant(values, make_observer("minmax"), spec)
        resolved = axis % 3
        assert result.scale.shape == spec.granularity.scale_shape(values.shape)
        size = spec.granularity.size
        for index in np.ndindex(result.scale.shape):
            part = tuple(
                slice(i * size, (i + 1) * size) if d == resolved else slice(i, i + 1) for d, i in enumerate(index)
            )
            assert (
                result.scale[index] == observe_constant(values[part], make_observer("minmax"), QuantSpec("int4")).scale
            )


@pytest.mark.parametrize("name", ["absmax", "no_overflow"])
def test_per_block_follows_the_observer(name):
    values = np.random.default_rng(9).normal(1, 1, size=(2, 8)).astype(np.float32)
    spec = QuantSpec("uint8", symmetric=False, power_of_two=name == "no_overflow", granularity=PerBlock(1, 4))
    result = observe_constant(values, make_observer(name), spec)
    for row, block in np.ndindex(2, 2):
        part = values[row, 4 * block : 4 * block + 4]
        one = observe_constant(part, make_observer(name), spec.replace(granularity=PerTensor()))
        assert (result.scale[row, block], result.zero_point[row, block]) == (one.scale, one.zero_point)


def test_per_block_takes_minmax_only_and_finite_weights():
    values = np.ones((4, 8), np.float32)
    spec = QuantSpec("int4", granularity=PerBlock(1, 4))
    with pytest.raises(UnsupportedError, match=r"observer 'mse' cannot work per block \(tensor 'w'\).*use minmax"):
        observe_constant(values, make_observer("mse"), spec, tensor="w")
    values[2, 5] = np.nan
    with pytest.raises(UnsupportedError, match=r"block \(2, 1\) of tensor 'w' holds NaN"):
        observe_constant(values, make_observer("minmax"), spec, tensor="w")


@pytest.mark.parametrize("granularity", [PerChannel(0), PerChannel(1), PerBlock(1, 32)], ids=str)
def test_a_mapped_weight_is_read_in_bounded_memory(tmp_path, granularity):
    """Peak resident memory stays far below the 160 MB that the float16 file has as float32."""
    path = tmp_path / "weight.npy"
    weight = np.lib.format.open_memmap(path, "w+", np.float16, (4_000, 10_016))
    weight[:, ::7] = 0.5
    weight[7, 3] = 2.0
    del weight
    code = f"""
import resource, numpy as np
from onnxq.observers import observe_constant, make_observer
from onnxq.types import PerBlock, PerChannel, QuantSpec
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
weight = np.load({str(path)!r}, mmap_mode="r")
result = observe_constant(weight, make_observer("minmax"), QuantSpec(granularity={granularity!r}))
mapped = weight.nbytes // 1024
print(result.scale.max() * 127, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before - mapped)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    largest, grown_kilobytes = output.split()
    assert float(largest) == pytest.approx(2.0)
    assert int(grown_kilobytes) < 40_000


@pytest.mark.parametrize("name", OBSERVERS.names())
def test_an_observer_is_named_after_its_file_and_prints_as_it_is_made(name):
    kind = OBSERVERS.get(name)
    assert kind.name == name
    assert Path(sys.modules[kind.__module__].__file__).stem == name
    assert make_observer(name) == kind()
    changed = kind(**{f.name: f.default - 1 if isinstance(f.default, int) else 0.75 * f.default for f in fields(kind)})
    assert make_observer(str(changed)) == changed
    assert str(kind()) == name


def test_observers_are_made_from_text_and_dicts():
    observer = make_observer("percentile:99.5")
    assert observer == make_observer("percentile:percentile=99.5")
    assert observer == make_observer({"name": "percentile", "percentile": 99.5})
    assert make_observer(observer) is observer
    assert str(observer) == "percentile:percentile=99.5"


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("percentil", "unknown observer 'percentil'. Did you mean 'percentile'"),
        ("percentile:percntile=9", "has no parameter 'percntile'. Did you mean 'percentile'"),
        ({"name": "ema_minmax", "dcay": 0.5}, "has no parameter 'dcay'. Did you mean 'decay'"),
        ("percentile:high", "parameter 'percentile' of observer 'percentile' must be a number, got 'high'"),
        ("percentile:40", "must be above 50 and at most 100, got 40"),
        ("ema_minmax:1", "must be at least 0 and below 1, got 1"),
        ("minmax:5", "observer 'minmax' has no parameter for '5'; its parameters: none"),
        ("percentile:99,percentile=98", "parameter 'percentile' of observer 'percentile' is given twice"),
        ({"percentile": 99}, 'an observer needs a "name"'),
        ("ema_quantile:threshold=0.5", "threshold of observer 'ema_quantile' must be above 0.5 and at most 1, got 0.5"),
        ("ema_mse:-1", "decay of observer 'ema_mse' must be at least 0 and below 1, got -1"),
        ("clip_std:0", "sigmas of observer 'clip_std' must be above 0 and finite, got 0"),
        ("pot_mode:candidates=0", "candidates of observer 'pot_mode' must be 1 to 32, got 0"),
        ("pot_mode:candidates=2.5", "parameter 'candidates' of observer 'pot_mode' must be a whole number, got '2.5'"),
        ("no_overflow:63", "max_position of observer 'no_overflow' must be 0 to 62, got 63"),
        ("ema_minmax_floor:candidates=40", "must be 1 to 32, got 40"),
    ],
)
def test_wrong_descriptions_say_what_is_right(description, message):
    with pytest.raises(ConfigError) as error:
        make_observer(description)
    assert message in str(error.value)


def test_a_statistic_that_does_not_fit_is_refused():
    values = np.ones((4, 3), np.float32)
    seen = RangeStatistic()
    seen.update(values)
    with pytest.raises(UnsupportedError, match=r"'mse' needs a histogram statistic.*of tensor 'x'"):
        qparams(make_observer("mse"), seen, QuantSpec(), tensor="x")
    with pytest.raises(UnsupportedError, match=r"per channel \(axis 1\) but the statistic was collected per tensor"):
        qparams(make_observer("minmax"), seen, QuantSpec(granularity=PerChannel(1)))
    with pytest.raises(UnsupportedError, match="block-wise formats are for constants"):
        qparams(make_observer("minmax"), seen, QuantSpec(granularity=PerBlock(1, 2)))


def test_observers_load_neither_torch_nor_onnxruntime():
    code = "import sys, onnxq.observers as o; o.OBSERVERS.names(); print({'torch', 'onnxruntime'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "set()"
    assert set(onnxq.observers.__all__) <= set(dir(onnxq.observers))
