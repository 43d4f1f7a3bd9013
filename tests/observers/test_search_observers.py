"""The observers that search: their ranges against brute force and textbook loops on the values themselves."""

import functools
import shutil

import numpy as np
import pytest

from onnxq.numerics.affine import fake_quantize
from onnxq.numerics.ranges import qparams_from_range
from onnxq.observers import HistogramStatistic, excess, make_observer
from onnxq.observers.excess import Excess, one_sign
from onnxq.observers.expected_error import ExpectedError
from onnxq.observers.kl import CANDIDATES, LINEAR_BINS, _candidates, _cumulative, _divergences, best_threshold
from onnxq.types import PerChannel, QuantSpec

COUNT = 200_000
"""So many values that the luck of single ones, which a histogram cannot know, is far below 1 % of the error."""


@functools.cache
def values(name, seed=0):
    generator = np.random.default_rng(seed)
    normal, laplace = generator.normal(size=COUNT), generator.laplace(size=COUNT)
    if name == "outliers":
        laplace[:8] *= 20
    elif name == "lopsided":
        normal += 0.5
        normal[:3] = [40, 35, 38]
    data = {
        "normal": normal,
        "relu": np.maximum(normal, 0),
        "laplace": laplace,
        "outliers": laplace,
        "lopsided": normal,
        "far from zero": normal + 20,
        "negative": -np.abs(laplace),
        "heavy tail": generator.standard_t(3, COUNT),
    }
    return data[name].astype(np.float32)


def histogram(array, axis=None):
    statistic = HistogramStatistic(axis)
    statistic.update(array)
    return statistic


def squares(array, low, high, spec):
    quantized = fake_quantize(array, qparams_from_range(low, high, spec))
    return np.subtract(array, quantized, dtype=np.float64) ** 2


def mean_square(array, low, high, spec):
    return float(np.mean(squares(array, low, high, spec)))


SYMMETRIC = [
    QuantSpec("int8"),
    QuantSpec("int8", narrow_range=True),
    QuantSpec("int8", power_of_two=True),
    QuantSpec("int8", rounding="floor"),
    QuantSpec("uint8"),
    QuantSpec("int6"),
    QuantSpec("int4"),
    QuantSpec("int3", rounding="half_away"),
    QuantSpec("int2"),
    QuantSpec("int1"),
    QuantSpec("fp8_e4m3"),
    QuantSpec("fp8_e5m2"),
]


PAIRS = (("normal", "outliers"), ("relu", "lopsided"))


@pytest.mark.parametrize(
    ("spec", "name"), [(spec, name) for i, spec in enumerate(SYMMETRIC) for name in PAIRS[i % 2]], ids=str
)
def test_mse_is_within_one_percent_of_the_best_of_400_ranges(spec, name):
    array = values(name, seed=1)
    low, high = make_observer("mse").range(histogram(array), spec)
    assert array.min() <= low <= high <= array.max()
    largest = float(array.max()) if spec.dtype.startswith("uint") else float(np.abs(array).max())
    scales = {}
    for ratio in np.geomspace(0.005, 1.0, 400):
        scales.setdefault(float(qparams_from_range(-largest * ratio, largest * ratio, spec).scale), ratio)
    # To choose among 400: the largest values, which decide about clipping, and every 20th of the others. All values
    # for the six best.
    order = np.argsort(np.abs(array))
    sample = np.concatenate([array[order[:-1000:20]], array[order[-1000:]]])
    weight = np.repeat([20.0, 1.0], [len(sample) - 1000, 1000])
    rough = {r: squares(sample, -largest * r, largest * r, spec) @ weight for r in scales.values()}
    finalists = sorted(rough, key=rough.get)[:6]
    best = min(mean_square(array, -largest * r, largest * r, spec) for r in finalists)
    assert mean_square(array, low, high, spec) <= 1.01 * best


ASYMMETRIC = {
    "uint8": QuantSpec("uint8", symmetric=False),
    "uint4": QuantSpec("uint4", symmetric=False),
    "uint2": QuantSpec("uint2", symmetric=False),
    "power of two": QuantSpec("uint8", symmetric=False, power_of_two=True),
    "floor": QuantSpec("uint4", symmetric=False, rounding="floor"),
    "uint12": QuantSpec("uint12", symmetric=False),
}

BY_SAMPLING = {
    "normal": (8.923e-05, 0.01198, 0.1500, 8.968e-05, 0.03471, 4.310e-07),
    "relu": (1.270e-05, 0.001872, 0.02353, 1.378e-05, 0.005653, 5.535e-08),
    "outliers": (0.01179, 0.09497, 0.4641, 0.01309, 0.2109, 6.799e-05),
    "lopsided": (0.002048, 0.02969, 0.2482, 0.002536, 0.05280, 9.650e-06),
    "far from zero": (0.0007320, 0.1816, 1.008, 0.001299, 0.6790, 3.036e-06),
    "negative": (0.0001568, 0.01841, 0.1689, 0.0003256, 0.05401, 6.829e-07),
    "heavy tail": (0.01250, 0.2995, 1.002, 0.01648, 0.5154, 7.031e-05),
}
"""Errors of ranges found by moving both ends in turn and quantizing four points of every bin."""


@pytest.mark.parametrize("name", BY_SAMPLING)
def test_asymmetric_mse_is_not_worse_than_a_search_that_quantizes_points(name):
    array = values(name)
    statistic = histogram(array)
    for spec, known in zip(ASYMMETRIC.values(), BY_SAMPLING[name], strict=True):
        low, high = make_observer("mse").range(statistic, spec)
        assert min(array.min(), 0) <= low <= high <= max(array.max(), 0)
        # Half of the last printed digit of the known error is below 0.05 %.
        assert mean_square(array, low, high, spec) <= 1.0105 * known, spec


def evenly_spread(bins, per_bin=64):
    """Values that are spread over their bins exactly as the observers take them to be, and how many each stands for."""
    inside = (np.arange(per_bin) + 0.5) / per_bin
    points = bins.lower[:, None] + (bins.upper - bins.lower)[:, None] * inside
    return points.ravel(), np.repeat(bins.count / per_bin, per_bin)


@pytest.mark.parametrize(
    "spec",
    [
        *SYMMETRIC,
        QuantSpec("int12"),
        QuantSpec("int12", rounding="floor"),
        QuantSpec("int16"),
        QuantSpec("nnie8"),
        *ASYMMETRIC.values(),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["lopsided", "far from zero", "negative"])
def test_the_expected_error_is_that_of_quantizing_evenly_spread_values(name, spec):
    bins = histogram(values(name)[:3000]).bins()
    points, weight = evenly_spread(bins)
    low, high = min(float(points.min()), 0.0), max(float(points.max()), 0.0)
    for ratio in (1.0, 0.6, 0.15):
        chosen = qparams_from_range(low * ratio, high * ratio, spec)
        scale = float(chosen.scale)
        (error,), (below,) = (a[0] for a in ExpectedError([bins], spec).of(np.array([[scale]]), np.array([0])))
        if not spec.symmetric:
            # The zero point is the observer's choice: no other one is better.
            zero_point = np.array(spec.qmin + below, np.int32)
            for other in {spec.qmin, spec.qmax, *np.clip(zero_point + [-1, 1], spec.qmin, spec.qmax)}:
                tried = type(chosen)(spec, chosen.scale, np.array(other, np.int32))
                assert weight @ (points - fake_quantize(points, tried)) ** 2 >= 0.99 * error
            chosen = type(chosen)(spec, chosen.scale, zero_point)
        true = weight @ (points - fake_quantize(points.astype(np.float32), chosen).astype(np.float64)) ** 2
        # 64 points of a bin are a little less even than the bin; wide formats are integrated.
        assert error == pytest.approx(true, rel=0.01), ratio


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_beyond_a_point_are_those_of_the_values(sign):
    rows = [histogram(values(name)[:500]).bins() for name in ("lopsided", "outliers", "relu")]
    table = Excess(rows, sign)
    points = np.array([0.0, 1e-30, 1e-4, 0.3, 1.0, 2.9, 3.4, 30.0, 1e9])
    for row, bins in enumerate(rows):
        side = one_sign(bins, sign)
        x, weight = evenly_spread(side, 4096)
        beyond = np.maximum(x - points[:, None], 0.0)
        which = np.array([row])
        np.testing.assert_allclose(table.count(points[None], which)[0], (x >= points[:, None]) @ weight, atol=0.01)
        np.testing.assert_allclose(table.excess(points[None], which)[0], beyond @ weight, rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(table.squares(points[None], which)[0], beyond**2 @ weight, rtol=1e-5, atol=1e-9)
        assert table.total_squares[row] == pytest.approx(x**2 @ weight, rel=1e-6)


@pytest.mark.parametrize("spec", [QuantSpec("int8"), QuantSpec("uint8", symmetric=False), QuantSpec("int4")], ids=str)
def test_mse_of_a_row_does_not_depend_on_the_rows_beside_it(spec):
    generator = np.random.default_rng(7)
    array = (generator.standard_t(3, (37, 400)) * 10.0 ** generator.integers(-6, 6, (37, 1))).astype(np.float32)
    array[5], array[9] = 0.0, np.abs(array[9])
    observer = make_observer("mse")
    together = observer.range(histogram(array, axis=0), spec.replace(granularity=PerChannel(0)))
    for row in range(len(array)):
        alone = observer.range(histogram(array[row]), spec)
        assert [float(end[row]) for end in together] == [float(end) for end in alone]


@pytest.mark.parametrize("spec", [QuantSpec("int8"), QuantSpec("uint8", symmetric=False), QuantSpec("fp16")], ids=str)
def test_mse_of_many_tensors_is_that_of_each(spec):
    generator = np.random.default_rng(8)
    arrays = {f"t{i}": generator.standard_t(3, 300).astype(np.float32) * 10.0 ** (i % 7 - 3) for i in range(20)}
    statistics = {name: histogram(array.astype(np.float32)) for name, array in arrays.items()}
    observer = make_observer("mse")
    together = observer.ranges(statistics, spec)
    assert list(together) == list(statistics)
    for name, statistic in statistics.items():
        alone = observer.range(statistic, spec)
        assert [(end.shape, end.dtype, end.item()) for end in together[name]] == [
            (end.shape, end.dtype, end.item()) for end in alone
        ]


def test_bins_follow_values_that_come_later():
    statistic = histogram(np.array([1.0, 2.0], np.float32))
    assert len(statistic.bins().code) == 2
    statistic.update(np.array([3.0], np.float32))
    assert len(statistic.bins().code) == 3
    other = histogram(np.array([-4.0], np.float32))
    statistic.merge(other)
    assert statistic.bins().code[0] == other.bins().code[0]


@pytest.mark.parametrize("spec", [*SYMMETRIC, QuantSpec("int16"), QuantSpec("nnie8"), *ASYMMETRIC.values()], ids=str)
def test_errors_in_c_have_the_bits_of_numpy(spec, monkeypatch):
    names = ("lopsided", "outliers", "relu", "far from zero", "negative")
    rows = [histogram(values(name)[:3000] * 10.0**power).bins() for power, name in enumerate(names, -2)]
    scale = np.geomspace(1e-7, 1.0, 60).reshape(5, 12)
    which = np.array([3, 0, 4, 1, 2])
    found = ExpectedError(rows, spec).of(scale, which)
    monkeypatch.setattr(excess, "compiled", None)
    for one, other in zip(found, ExpectedError(rows, spec).of(scale, which), strict=True):
        assert one.tobytes() == other.tobytes()


def test_errors_are_computed_in_c_where_there_is_a_compiler():
    assert excess.compiled is not None or shutil.which("cc") is None


@pytest.mark.parametrize("spec", [QuantSpec("uint8", symmetric=False, power_of_two=True), QuantSpec("int5")], ids=str)
def test_a_mask_value_does_not_hide_the_others(spec):
    """Beside -3.4e38 no other value counts; the search must not drown in its rounding errors and clip it."""
    array = values("normal")[:1000].copy()
    array[3] = np.finfo(np.float32).min
    low, _ = make_observer("mse").range(histogram(array), spec)
    assert low <= 0.99 * array[3]


def textbook_threshold(counts, levels, candidates):
    """Entropy calibration as published: one threshold after another, P and Q written out bin by bin."""
    divergences = []
    for keep in candidates:
        p, q = counts[:keep].copy(), np.zeros(keep)
        p[-1] += counts[keep:].sum()
        for level in range(levels):
            part = slice(level * keep // levels, (level + 1) * keep // levels)
            members = p[part] > 0
            q[part] = np.where(members, counts[part].sum() / max(members.sum(), 1), 0.0)
        q = np.where((p > 0) & (q == 0), 1e-4, q)
        if counts[:keep].sum() < 0.5 * counts.sum():
            divergences.append(np.inf)
            continue
        used = p > 0
        p, q = p[used] / p.sum(), q[used] / counts[:keep].sum()
        divergences.append(float(np.sum(p * np.log(p / q))))
    return divergences


@pytest.mark.parametrize(("name", "levels"), [("laplace", 128), ("relu", 128), ("normal", 128), ("laplace", 8)])
def test_kl_finds_the_threshold_of_the_textbook(name, levels):
    bins = histogram(values(name)).bins()
    sides = [one_sign(bins, sign) for sign in (1, -1)]
    found = best_threshold(sides, levels)
    spread = [evenly_spread(side) for side in sides if len(side.count)]
    x, weight = (np.concatenate(part) for part in zip(*spread, strict=True))
    counts, _ = np.histogram(x, LINEAR_BINS, (0.0, x.max()), weights=weight)
    candidates = np.linspace(levels, LINEAR_BINS, CANDIDATES).astype(int)
    divergences = textbook_threshold(counts, levels, candidates)
    expected = x.max() * candidates[int(np.argmin(divergences))] / LINEAR_BINS
    assert found == pytest.approx(expected, abs=1.001 * x.max() / CANDIDATES)


def test_kl_divergences_are_those_of_the_textbook():
    sides = [one_sign(histogram(np.abs(values("laplace")[:5000])).bins(), 1)]
    levels, size = 16, 256
    cumulative = _cumulative(sides, np.linspace(0, sides[0].upper[-1], size + 1))
    candidates, edges = _candidates(levels, size)
    found = _divergences(cumulative, float(sides[0].count.sum()), candidates, edges)
    expected = textbook_threshold(np.diff(cumulative), levels, candidates)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert np.isinf(found).any()
    assert np.isfinite(found).any()


def test_kl_does_not_take_a_threshold_below_all_values():
    """There P and Q are one bin each and equal, although everything is clipped."""
    for dtype in ("int8", "int4"):
        low, high = make_observer("kl").range(histogram(values("far from zero")), QuantSpec(dtype))
        assert low == 0.0
        assert high > 20.0


@pytest.mark.parametrize("percentile", [50.5, 75.0, 99.0, 99.99, 100.0])
@pytest.mark.parametrize("name", ["normal", "lopsided", "negative", "far from zero"])
def test_percentile_of_few_and_many_magnitudes_is_that_of_numpy(name, percentile):
    for count in (1, 2, 3, 50, 5000):
        array = values(name)[:count]
        for spec, magnitudes in ((QuantSpec("int8"), np.abs(array)), (QuantSpec("uint8"), np.maximum(array, 0))):
            observer = make_observer({"name": "percentile", "percentile": percentile})
            low, high = observer.range(histogram(array), spec)
            expected = np.percentile(magnitudes.astype(np.float64), percentile)
            reached = min(expected, max(float(array.max()), 0.0)), max(-expected, min(float(array.min()), 0.0))
            np.testing.assert_allclose([high, low], reached, rtol=2.0**-7)
