"""Statistics that look at each sample on its own: moving averages and votes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.errors import UnsupportedError
from onnxq.observers import HistogramStatistic, VotesStatistic, make_observer, qparams, statistic_from_arrays
from onnxq.types import PerChannel, QuantSpec

POWER = QuantSpec("int8", power_of_two=True)
CASES = {
    "ema_minmax:0.8": QuantSpec("int8"),
    "ema_quantile:0.8,0.95": QuantSpec("int8"),
    "ema_mse:0.8": QuantSpec("int4"),
    "ema_minmax_floor:0.8": POWER,
    "pot_mode": POWER,
}


@pytest.fixture(scope="module")
def samples():
    """24 samples of 3 channels whose sizes differ from sample to sample."""
    generator = np.random.default_rng(5)
    values = generator.laplace(size=(24, 3, 50)).astype(np.float32)
    return values * (2.0 ** generator.integers(-2, 3, (24, 1, 1))).astype(np.float32)


def collected(name, spec, samples, sizes, axis=None, first=0):
    """The statistic of the samples in batches of the given sizes."""
    statistic = make_observer(name).new_statistic(axis, spec)
    start = 0
    for size in sizes:
        statistic.update(samples[start : start + size], first + start, batch=size)
        start += size
    return statistic


def same_bits(first, second):
    a, b = first.to_arrays(), second.to_arrays()
    assert a.keys() == b.keys()
    assert all(a[key].tobytes() == b[key].tobytes() for key in a)


def range_of_sample(name, spec, sample):
    statistic = HistogramStatistic()
    statistic.update(sample)
    return make_observer(name).range(statistic, spec)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=4, deadline=None)
@given(cuts=st.sets(st.integers(1, 7)))
def test_the_batch_size_changes_nothing(name, samples, cuts):
    edges = [0, *sorted(cuts), 8]
    spec = CASES[name]
    one_by_one = collected(name, spec, samples[:8], [1] * 8)
    same_bits(one_by_one, collected(name, spec, samples[:8], np.diff(edges).tolist()))


@pytest.mark.parametrize(
    ("name", "inner"), [("ema_minmax", "minmax"), ("ema_quantile", "percentile:99.999"), ("ema_mse", "mse")]
)
@pytest.mark.parametrize("spec", [QuantSpec("int8"), QuantSpec("uint4", symmetric=False)], ids=str)
def test_averages_are_those_of_the_samples(name, inner, spec, samples):
    low = high = None
    for sample in samples:
        lowest, highest = range_of_sample(inner, spec, sample)
        low = lowest if low is None else 0.9 * low + (1 - 0.9) * lowest
        high = highest if high is None else 0.9 * high + (1 - 0.9) * highest
    found = make_observer(name).range(collected(name, spec, samples, [8, 8, 8]), spec)
    np.testing.assert_allclose(found, (low, high), rtol=1e-12)


def test_quantiles_of_samples_are_those_of_numpy(samples):
    quantiles = [np.quantile(np.abs(sample.astype(np.float64)), 0.95) for sample in samples]
    average = quantiles[0]
    for quantile in quantiles[1:]:
        average = 0.8 * average + 0.2 * quantile
    name = "ema_quantile:0.8,0.95"
    _, high = make_observer(name).range(collected(name, QuantSpec(), samples, [24]), QuantSpec())
    assert high == pytest.approx(average, rel=2.0**-7)  # the width of a bin


def test_the_averaged_range_of_positions_is_rounded_up_to_one():
    name = "ema_minmax_floor"
    small, large = np.full((1, 4), 1.0, np.float32), np.full((1, 4), 8.0, np.float32)
    scales = [2.0**-6, 2.0**-3]  # 1.0 and 8.0 in int8: 64 steps each, the first of five equally exact ones
    for first, second in ((small, small), (large, large), (small, large), (large, small)):
        statistic = make_observer(name).new_statistic(None, POWER)
        for i, sample in enumerate([first, *[second] * 3]):
            statistic.update(sample, i)
        average = scales[0] if first is small else scales[1]
        for _ in range(3):
            average = 0.9 * average + 0.1 * (scales[0] if second is small else scales[1])
        expected = 2.0 ** np.ceil(np.log2(average * (1 - 1e-12)))
        assert qparams(make_observer(name), statistic, POWER).scale == expected


def test_most_samples_decide_and_ties_go_to_the_larger_scale():
    def scale(sizes):
        statistic = make_observer("pot_mode").new_statistic(None, POWER)
        for i, size in enumerate(sizes):
            statistic.update(np.array([size, -size / 2], np.float32), i)
        return float(qparams(make_observer("pot_mode"), statistic, POWER).scale)

    assert scale([1.0, 1.0, 8.0]) == 2.0**-6
    assert scale([8.0, 1.0, 8.0]) == 2.0**-3
    assert scale([1.0, 8.0]) == scale([8.0, 1.0]) == 2.0**-3


@pytest.mark.parametrize("axis", [None, 1])
def test_votes_do_not_depend_on_order_or_shards(axis, samples):
    whole = collected("pot_mode", POWER, samples, [24], axis)
    order = np.random.default_rng(3).permutation(24)
    shards = [collected("pot_mode", POWER, samples[order[i::3]], [8], axis) for i in range(3)]
    merged = make_observer("pot_mode").new_statistic(axis, POWER)
    for i in (2, 0, 1):
        merged.merge(shards[i])
    np.testing.assert_array_equal(merged.votes, whole.votes)
    assert merged.votes.sum() == 24 * (1 if axis is None else 3)
    spec = POWER if axis is None else POWER.replace(granularity=PerChannel(1))
    assert qparams(make_observer("pot_mode"), merged, spec) == qparams(make_observer("pot_mode"), whole, spec)


@pytest.mark.parametrize("name", CASES)
def test_each_channel_is_as_if_alone(name, samples):
    spec = CASES[name].replace(granularity=PerChannel(1))
    whole = qparams(make_observer(name), collected(name, spec, samples, [24], 1), spec)
    for channel in range(3):
        alone = collected(name, CASES[name], samples[:, channel : channel + 1], [24])
        assert whole.scale[channel] == qparams(make_observer(name), alone, CASES[name]).scale


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("axis", [None, 1])
def test_they_survive_an_npz_file_and_go_on(name, axis, samples, tmp_path):
    statistic = collected(name, CASES[name], samples[:8], [8], axis)
    np.savez(tmp_path / "statistic.npz", **statistic.to_arrays())
    with np.load(tmp_path / "statistic.npz") as stored:
        loaded = statistic_from_arrays(stored)
    for each in (statistic, loaded):
        each.update(samples[8:], 8, batch=16)
    same_bits(statistic, loaded)
    assert str(loaded.inner) == str(statistic.inner)
    assert loaded.spec == statistic.spec


@pytest.mark.parametrize("name", CASES)
def test_looking_changes_nothing_and_adding_is_updating(name, samples):
    looked, updated = (make_observer(name).new_statistic(None, CASES[name]) for _ in range(2))
    before = looked.to_arrays()
    partials = [looked.look(samples[i : i + 4], i, batch=4) for i in range(0, 12, 4)]
    assert all(np.array_equal(before[key], value) for key, value in looked.to_arrays().items())
    for i, partial in enumerate(partials):
        looked.add(partial)
        updated.update(samples[4 * i : 4 * i + 4], 4 * i, batch=4)
    same_bits(looked, updated)
    assert looked.ordered == name.startswith("ema_")
    assert looked.look(np.zeros((0, 3), np.float32)) is None


@pytest.mark.parametrize("name", CASES)
def test_a_channel_of_nan_has_no_say_in_that_sample(name, samples):
    spec = CASES[name].replace(granularity=PerChannel(1))
    broken = samples.copy()
    broken[3, 1] = np.nan
    found = qparams(make_observer(name), collected(name, spec, broken, [24], 1), spec)
    clean = qparams(make_observer(name), collected(name, spec, samples, [24], 1), spec)
    rest = qparams(make_observer(name), collected(name, spec, np.delete(samples, 3, axis=0), [23], 1), spec)
    assert found.scale[0] == clean.scale[0]
    assert found.scale[2] == clean.scale[2]
    assert found.scale[1] == rest.scale[1]


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("ema_")])
def test_two_shards_of_averages_do_not_merge(name, samples):
    full = collected(name, CASES[name], samples[:2], [2])
    empty = make_observer(name).new_statistic(None, CASES[name])
    empty.merge(full)
    same_bits(empty, full)
    with pytest.raises(UnsupportedError, match=r"depend on the order of the samples.*calibrate in one process"):
        full.merge(empty)


def test_other_settings_than_those_collected_with_are_refused(samples):
    seen = collected("ema_mse", QuantSpec("int8"), samples, [24])
    with pytest.raises(UnsupportedError, match=r"collected for int8, symmetric, per tensor, not for int4"):
        make_observer("ema_mse").range(seen, QuantSpec("int4"))
    with pytest.raises(UnsupportedError, match=r"averaged with decay 0.9, not 0.5"):
        make_observer("ema_mse:0.5").range(seen, QuantSpec("int8"))
    with pytest.raises(UnsupportedError, match=r"holds ranges of 'mse', not of 'minmax'"):
        make_observer("ema_minmax").range(seen, QuantSpec("int8"))
    with pytest.raises(UnsupportedError, match=r"not of 'minmax_floor:max_position=12'"):
        collected("pot_mode", POWER, samples, [24]).merge(
            make_observer("pot_mode:max_position=12").new_statistic(None, POWER)
        )
    with pytest.raises(
        UnsupportedError, match=r"'pot_mode' finds a range for each sample in the number format.*`spec`"
    ):
        make_observer("pot_mode").new_statistic()
    # Minimum and maximum do not depend on the format.
    average = collected("ema_minmax", None, samples, [24])
    assert make_observer("ema_minmax").range(average, QuantSpec("int4")) == make_observer("ema_minmax").range(
        average, QuantSpec("uint8", symmetric=False)
    )


def test_statistics_are_shared_by_what_can_share_them():
    int8, int4 = QuantSpec("int8"), QuantSpec("int4")

    def key(name, spec, axis=None):
        return make_observer(name).statistic_key(axis, spec)

    assert key("mse", int8) == key("kl", int4) == key("percentile:99", int8)
    assert key("mse", int8) != key("mse", int8, axis=1)
    assert key("minmax", int8) != key("mse", int8)
    assert key("ema_minmax", int8) == key("ema_minmax", int4) != key("ema_minmax:0.5", int4)
    assert key("ema_mse", int8) != key("ema_mse", int4)
    assert key("pot_mode", int8) != key("pot_mode:candidates=3", int8)


def test_a_votes_statistic_stands_alone():
    statistic = VotesStatistic()
    statistic.update(np.array([1.0, -2.0], np.float32))
    assert statistic.votes.sum() == 1
    assert statistic.winners().tolist() == [6]  # two in steps of 2^-6 is the 128 of int8


@pytest.mark.parametrize("observer", ["ema_minmax", "ema_mse", "pot_mode"])
def test_a_single_number_that_is_not_finite_is_left_out(observer):
    statistic = make_observer(observer).new_statistic(None, QuantSpec())
    for sample, value in enumerate([1.0, np.nan, 3.0]):
        statistic.update(np.array(value, np.float32), sample)
    assert statistic.nonfinite == 1
    assert float(make_observer(observer).range(statistic, QuantSpec())[1]) > 0
