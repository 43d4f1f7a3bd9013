"""Statistics: exact, mergeable, savable, and blind to batch size, order and sharding."""

import numpy as np
import pytest

from onnxq.errors import DataError, UnsupportedError
from onnxq.observers import EmaStatistic, HistogramStatistic, RangeStatistic, make_observer, statistic_from_arrays
from onnxq.observers.statistics.scan import pieces
from onnxq.types import PerChannel, QuantSpec

SPECS = {
    "int8": QuantSpec("int8"),
    "uint8 asymmetric": QuantSpec("uint8", symmetric=False),
    "int4 power of two": QuantSpec("int4", power_of_two=True),
}


@pytest.fixture(scope="module")
def samples():
    """96 samples of 4 channels with tails, exact zeros of both signs and one outlier."""
    generator = np.random.default_rng(7)
    values = generator.standard_t(4, (96, 4, 6, 6)).astype(np.float32) * np.array([1, 5, 0.01, 3], "f4")[:, None, None]
    values[values < -4] = -0.0
    values[3, 0, 0, :3] = 0.0
    values[41, 2, 5, 5] = 250.0
    return values


def collect(statistic, samples, order, batch):
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        statistic.update(samples[chosen], int(min(chosen)), batch=len(chosen))
    return statistic


def same_bits(first, second, but=()):
    a, b = first.to_arrays(), second.to_arrays()
    assert a.keys() == b.keys()
    for key in a.keys() - set(but):
        assert a[key].dtype == b[key].dtype
        assert a[key].tobytes() == b[key].tobytes(), key


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("name", ["minmax", "percentile:99.9", "mse", "kl"])
def test_batch_size_order_and_shards_change_no_bit(samples, name, axis):
    observer = make_observer(name)
    forward = np.arange(len(samples))
    shuffled = np.random.default_rng(1).permutation(len(samples))
    reference = collect(observer.new_statistic(axis), samples, forward, 1)
    variants = [
        collect(observer.new_statistic(axis), samples, forward, 4),
        collect(observer.new_statistic(axis), samples, forward, 32),
        collect(observer.new_statistic(axis), samples, shuffled, 5),
    ]
    shards = [collect(observer.new_statistic(axis), samples, shuffled[i::3], 7) for i in range(3)]
    for order in ((0, 1, 2), (2, 0, 1)):
        merged = observer.new_statistic(axis)
        for i in order:
            merged.merge(shards[i])
        variants.append(merged)
    for variant in variants:
        # Batches of shuffled samples cannot say which sample they hold; all that was seen of it is the same.
        same_bits(reference, variant, but=["peak_sample"])
        for spec in SPECS.values():
            for expected, got in zip(observer.range(reference, spec), observer.range(variant, spec), strict=True):
                assert expected.tobytes() == got.tobytes()


def test_the_two_largest_samples_are_remembered_whatever_the_batch(samples):
    single, batched = RangeStatistic(), RangeStatistic()
    for i in reversed(range(96)):
        single.update(samples[i : i + 1], i)
    for start in range(0, 96, 32):
        batched.update(samples[start : start + 32], start, batch=32)
    magnitudes = np.abs(samples).max(axis=(1, 2, 3))
    first, second = np.argsort(-magnitudes, kind="stable")[:2]
    expected = ((float(magnitudes[first]), int(first)), (float(magnitudes[second]), int(second)))
    assert single.peaks == batched.peaks == expected


def test_minimum_and_maximum_are_exact(samples):
    per_tensor, per_channel = RangeStatistic(), RangeStatistic(axis=1)
    per_tensor.update(samples)
    per_channel.update(samples)
    assert (per_tensor.minimum[0], per_tensor.maximum[0]) == (samples.min(), samples.max())
    np.testing.assert_array_equal(per_channel.minimum, samples.min(axis=(0, 2, 3)))
    np.testing.assert_array_equal(per_channel.maximum, samples.max(axis=(0, 2, 3)))
    np.testing.assert_array_equal(per_channel.count, np.full(4, 96 * 36))


def test_histogram_counts_every_value_in_a_bin_that_holds_it(samples):
    statistic = HistogramStatistic()
    statistic.update(samples)
    bins = statistic.bins()
    assert bins.count.sum() == samples.size
    assert bins.count[bins.code == 0] == np.count_nonzero(samples == 0)
    assert bins.lower[0] == samples.min()
    assert bins.upper[-1] == samples.max()
    assert np.all(bins.lower[1:] >= bins.upper[:-1])
    width = (bins.upper - bins.lower) / np.maximum(np.abs(bins.middle), 1e-30)
    assert width.max() <= 2.0**-7
    for i in range(0, len(bins.count), 50):
        if bins.code[i] > 0 and bins.upper[i] < samples.max():
            inside = (samples >= bins.lower[i]) & (samples < bins.upper[i])
            assert np.count_nonzero(inside) == bins.count[i]


def test_magnitudes_count_both_signs_together():
    statistic = HistogramStatistic()
    statistic.update(np.array([-2.0, 2.0, -2.0, 1.0, 0.0, -0.0, -3.0], np.float32))
    both = statistic.bins().magnitudes()
    np.testing.assert_array_equal(both.count, [2, 1, 3, 1])
    assert both.upper[-1] == 3.0
    positive = statistic.bins().magnitudes(positive_only=True)
    np.testing.assert_array_equal(positive.count, [5, 1, 1])
    assert positive.upper[-1] == 2.0


@pytest.mark.parametrize("kind", [RangeStatistic, HistogramStatistic])
def test_values_in_pieces_count_as_the_whole(kind, monkeypatch):
    values = np.random.default_rng(0).standard_normal((3, 70, 11)).astype(np.float32)
    for axis in (None, 0, 1, 2):
        whole, cut = kind(axis), kind(axis)
        whole.update(values)
        with monkeypatch.context() as patch:
            patch.setattr("onnxq.observers.statistics.range.pieces", lambda shape: pieces(shape, 50))
            cut.update(values)
        same_bits(whole, cut)


@pytest.mark.parametrize("shape", [(), (7,), (1, 1, 40), (3, 50), (5, 1, 9, 2)])
def test_pieces_cover_an_array_once_within_the_limit(shape):
    seen = np.zeros(shape, int)
    for index in pieces(shape, 8):
        seen[index] += 1
        assert seen[index].size <= 8
    assert np.all(seen == 1)


@pytest.mark.parametrize("kind", [RangeStatistic, HistogramStatistic])
def test_nonfinite_values_are_left_out_counted_and_located(kind):
    values = np.ones((8, 2, 3), np.float32)
    values[5, 1, 0] = np.nan
    values[6, 0, 0] = -np.inf
    values[2, 0, 1] = -3.4e38
    single, batched = kind(), kind()
    for i, value in enumerate(values):
        single.update(value[None], 100 + i)
    batched.update(values, 100, batch=8)
    same_bits(single, batched)
    assert single.nonfinite == 2
    assert single.first_nonfinite == 105
    assert single.minimum[0] == np.float32(-3.4e38)
    assert single.maximum[0] == 1.0
    assert single.count[0] == values.size - 2
    if isinstance(single, HistogramStatistic):
        assert single.bins().count.sum() == values.size - 2


def test_float64_beyond_float32_counts_as_nonfinite():
    statistic = RangeStatistic()
    statistic.update(np.array([1e300, 1.0]))
    assert (statistic.nonfinite, statistic.maximum[0]) == (1, 1.0)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8])
def test_other_dtypes_are_read_as_float32(dtype):
    values = np.array([[0, 3], [7, 2]], dtype)
    statistic = HistogramStatistic()
    statistic.update(values)
    assert (statistic.minimum[0], statistic.maximum[0], statistic.bins().count.sum()) == (0.0, 7.0, 4)


@pytest.mark.parametrize("kind", [RangeStatistic, HistogramStatistic, EmaStatistic])
@pytest.mark.parametrize("axis", [None, 1])
def test_statistics_survive_an_npz_file(tmp_path, samples, kind, axis):
    statistic = kind(axis)
    statistic.update(samples[:10], 0, batch=10)
    statistic.update(np.full((1, 4, 2, 2), np.nan, np.float32), 10)
    np.savez(tmp_path / "statistic.npz", **statistic.to_arrays())
    with np.load(tmp_path / "statistic.npz") as arrays:
        loaded = statistic_from_arrays(arrays)
    assert type(loaded) is kind
    same_bits(statistic, loaded)
    statistic.update(samples[10:12], 11, batch=2)
    loaded.update(samples[10:12], 11, batch=2)
    same_bits(statistic, loaded)


def test_memory_does_not_grow_with_samples():
    statistic = HistogramStatistic()
    generator = np.random.default_rng(0)
    sizes = []
    for _ in range(30):
        statistic.update(generator.uniform(1, 4, 20_000).astype(np.float32))
        sizes.append(len(statistic.bins().count))
    assert sizes[0] == sizes[-1] == 256


def test_moving_average_is_per_sample_whatever_the_batch(samples):
    single, batched = EmaStatistic(decay=0.8), EmaStatistic(decay=0.8)
    expected = None
    for i, value in enumerate(samples):
        single.update(value[None], i)
        high = float(value.max())
        expected = high if expected is None else 0.8 * expected + (1.0 - 0.8) * high
    for start in range(0, 96, 32):
        batched.update(samples[start : start + 32], start, batch=32)
    same_bits(single, batched)
    assert single.average_maximum[0] == expected


def test_moving_averages_merge_only_with_an_empty_side(samples):
    full, empty = EmaStatistic(), EmaStatistic()
    full.update(samples[:2])
    empty.merge(full)
    same_bits(full, empty)
    full.merge(EmaStatistic())
    same_bits(full, empty)
    with pytest.raises(UnsupportedError, match="calibrate in one process"):
        full.merge(empty)


def test_different_statistics_do_not_merge(samples):
    with pytest.raises(UnsupportedError, match="same settings"):
        RangeStatistic().merge(HistogramStatistic())
    with pytest.raises(UnsupportedError, match="axis 1"):
        RangeStatistic().merge(RangeStatistic(1))


def test_a_channel_axis_that_changes_length_is_named():
    statistic = RangeStatistic(1)
    statistic.update(np.ones((1, 3)))
    with pytest.raises(DataError, match=r"axis 1 had 3 channels before and has 4 now.*per tensor"):
        statistic.update(np.ones((1, 4)))


@pytest.mark.parametrize("name", ["minmax", "ema_minmax", "percentile", "mse", "kl"])
def test_empty_and_all_nan_say_what_to_do(name):
    observer = make_observer(name)
    empty = observer.new_statistic()
    empty.update(np.zeros((0, 3), np.float32))
    with pytest.raises(DataError, match=r"no values of tensor 'relu_1' were seen.*at least one calibration sample"):
        observer.range(empty, QuantSpec(), tensor="relu_1")
    nothing = observer.new_statistic()
    nothing.update(np.full(4, np.nan, np.float32), 17)
    with pytest.raises(DataError, match=r"all values are NaN or infinite, first in sample 17"):
        observer.range(nothing, QuantSpec())
    channel = observer.new_statistic(0)
    channel.update(np.array([[1.0, 2.0], [np.nan, np.inf]], np.float32))
    with pytest.raises(DataError, match=r"in channel 1 of axis 0 are NaN"):
        observer.range(channel, QuantSpec(granularity=PerChannel(0)))
