"""Gradients of fake-quantizers against the formulae of the papers, computed value by value in float64 with numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from onnxq.numerics import qparams_from_range
from onnxq.torchnet.fake_quantize import FakeQuantize
from onnxq.types import PerBlock, PerChannel, QParams, QuantSpec
from tests.torchnet.fake_quantize.cases import SHAPE, module

RNG = np.random.default_rng(5)
X = (1.6 * RNG.standard_normal(SHAPE)).astype(np.float32)
G = RNG.standard_normal(SHAPE).astype(np.float32)


def gradients(quantizer: FakeQuantize, x: np.ndarray = X, gradient: np.ndarray = G) -> np.ndarray:
    """dy/dx for the gradient of the result; those of parameters are left in them."""
    leaf = torch.from_numpy(x.copy()).requires_grad_()
    quantizer(leaf).backward(torch.from_numpy(gradient))
    assert leaf.grad is not None
    return leaf.grad.numpy()


def rows(qparams: QParams) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point of every value, float64."""
    scale, zero_point = qparams.scale.astype(np.float64), qparams.zero_point.astype(np.float64)
    granularity = qparams.spec.granularity
    if isinstance(granularity, PerChannel):
        return np.broadcast_to(scale.reshape(1, -1, 1), SHAPE), np.broadcast_to(zero_point.reshape(1, -1, 1), SHAPE)
    if isinstance(granularity, PerBlock):
        blocks = np.arange(SHAPE[1]) // granularity.size
        return scale[:, blocks], zero_point[:, blocks]
    return np.full(SHAPE, scale), np.full(SHAPE, zero_point)


def per_scale(values: np.ndarray, spec: QuantSpec) -> np.ndarray:
    """The sum over the values that share a scale."""
    if isinstance(spec.granularity, PerChannel):
        return values.sum(axis=(0, 2))
    if isinstance(spec.granularity, PerBlock):
        size = spec.granularity.size
        starts = range(0, SHAPE[1], size)
        return np.stack([values[:, start : start + size].sum(axis=1) for start in starts], axis=1)
    return values.sum()


def numbers(spec: QuantSpec) -> QParams:
    shape = spec.scale_shape(SHAPE)
    return qparams_from_range(np.full(shape, -1.3), np.linspace(1.1, 1.9, math.prod(shape)).reshape(shape), spec)


LSQ_FORMATS = [
    QuantSpec("int4"),
    QuantSpec("int2"),
    QuantSpec("int1"),
    QuantSpec("uint4", symmetric=False),
    QuantSpec("int4", granularity=PerChannel(1)),
    QuantSpec("uint3", symmetric=False, granularity=PerChannel(1)),
    QuantSpec("int4", granularity=PerBlock(1, 4)),
    QuantSpec("uint4", symmetric=False, granularity=PerBlock(1, 5)),
]


@pytest.mark.parametrize("spec", LSQ_FORMATS, ids=str)
@pytest.mark.parametrize(("kind", "role"), [("lsq", "weight"), ("lsq_plus", "activation")])
def test_learnt_scales_and_zero_points_get_the_gradients_of_lsq(kind: str, role: str, spec: QuantSpec) -> None:
    qparams = numbers(spec)
    quantizer = module(kind, qparams, role)  # type: ignore[arg-type]
    to_x = gradients(quantizer)
    scale, zero_point = rows(qparams)
    ratio, low, high = X / scale, spec.qmin - zero_point, spec.qmax - zero_point
    within = (ratio > low) & (ratio < high)
    np.testing.assert_array_equal(to_x, np.where(within, G, 0))
    step = np.where(within, np.rint(ratio) - ratio, np.clip(ratio, low, high))
    sharing = {"weight": X.size, "activation": X.size // SHAPE[0]}[role]
    if isinstance(spec.granularity, PerChannel):
        sharing //= SHAPE[1]
    if isinstance(spec.granularity, PerBlock):
        sharing = spec.granularity.size
    factor = 1 / math.sqrt(sharing * (spec.qmax or -spec.qmin))
    np.testing.assert_allclose(quantizer.scale.grad, per_scale(G * step, spec) * factor, rtol=2e-4, atol=1e-5)
    if kind == "lsq_plus" and not spec.symmetric:
        expected = per_scale(np.where(within, 0, -scale) * G, spec) * factor
        np.testing.assert_allclose(quantizer.zero_point.grad, expected, rtol=2e-4, atol=1e-6)
    else:
        assert not isinstance(quantizer.zero_point, torch.nn.Parameter)


@pytest.mark.parametrize(
    "spec", [QuantSpec("int4", granularity=PerChannel(1)), QuantSpec("uint4", symmetric=False)], ids=str
)
@pytest.mark.parametrize("kind", ["lsq", "lsq_plus"])
def test_gradients_of_scales_without_the_factor_are_plain_sums(kind: str, spec: QuantSpec) -> None:
    qparams = numbers(spec)
    scaled, plain = module(kind, qparams, "weight"), module(f"{kind}:use_grad_scaling=0", qparams, "weight")
    np.testing.assert_array_equal(gradients(scaled), gradients(plain))
    sharing = X.size // (SHAPE[1] if isinstance(spec.granularity, PerChannel) else 1)
    for name, parameter in plain.named_parameters():
        with_factor = scaled.get_parameter(name).grad
        assert with_factor is not None
        assert parameter.grad is not None
        np.testing.assert_allclose(with_factor * math.sqrt(sharing * spec.qmax), parameter.grad, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_a_scale_depends_neither_on_batch_size_nor_on_how_a_batch_is_shared() -> None:
    qparams = numbers(QuantSpec("int4"))
    found = []
    for parts in (X[None], X.reshape(2, 2, *SHAPE[1:]), np.concatenate([X, X])[None]):
        quantizer = module("lsq", qparams, "activation")
        for part in parts:
            # The mean over samples, and over the processes that have a part each.
            gradients(quantizer, part, np.ones_like(part) / (len(part) * len(parts)))
        assert quantizer.scale.grad is not None
        found.append(float(quantizer.scale.grad))
    assert found == pytest.approx([found[0]] * 3, rel=1e-5)


@pytest.mark.parametrize("spec", [QuantSpec("fp8_e4m3"), QuantSpec("fp8_e5m2", granularity=PerChannel(1))], ids=str)
def test_scales_of_floating_point_formats_learn_as_well(spec: QuantSpec) -> None:
    qparams = numbers(spec)
    quantizer = module("lsq", qparams, "weight")
    values = torch.from_numpy(X)
    y = quantizer(values).detach().numpy().astype(np.float64)
    to_x = gradients(quantizer)
    scale, _ = rows(qparams)
    largest = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0}[spec.dtype]
    within = np.abs(X) < largest * scale
    np.testing.assert_array_equal(to_x, np.where(within, G, 0))
    sharing = X.size if spec.dtype == "fp8_e4m3" else X.size // SHAPE[1]
    expected = per_scale(G * np.where(within, y - X, y) / scale, spec) / math.sqrt(sharing * largest)
    np.testing.assert_allclose(quantizer.scale.grad, expected, rtol=1e-3)


@pytest.mark.parametrize("granularity", [QuantSpec().granularity, PerChannel(1), PerBlock(1, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_log2_of_a_threshold_gets_the_gradient_of_tqt(dtype: str, granularity: PerChannel) -> None:
    spec = QuantSpec(dtype, power_of_two=True, granularity=granularity)
    qparams = numbers(spec)
    quantizer = module("tqt", qparams, "weight")
    to_x = gradients(quantizer)
    scale, _ = rows(qparams)
    rounded = np.rint(X / scale)
    within = (rounded >= spec.qmin) & (rounded <= spec.qmax)
    np.testing.assert_array_equal(to_x, np.where(within, G, 0))
    steps = np.where(within, rounded - X / scale, np.clip(rounded, spec.qmin, spec.qmax))
    expected = per_scale(G * scale * math.log(2) * steps, spec)
    np.testing.assert_allclose(quantizer.log2_threshold.grad, expected, rtol=2e-4, atol=1e-5)


def test_a_threshold_of_tqt_means_the_power_of_two_above_it() -> None:
    quantizer = module("tqt", qparams_from_range(-1.0, 1.0, QuantSpec("int8", power_of_two=True)), "weight")
    for threshold, scale in [(1.0, 2**-7), (1.01, 2**-6), (0.51, 2**-7), (0.5, 2**-8), (2.0, 2**-6)]:
        quantizer.log2_threshold.data.fill_(math.log2(threshold))
        assert float(quantizer.to_qparams().scale) == scale


@pytest.mark.parametrize(
    ("spec", "low", "has_lower"),
    [
        (QuantSpec("int4"), -1.3, False),
        (QuantSpec("uint4"), 0.0, False),
        (QuantSpec("uint4", symmetric=False), -0.7, True),
        (QuantSpec("uint4", symmetric=False), 0.0, False),
    ],
    ids=str,
)
def test_the_ends_of_the_range_get_the_gradients_of_pact(spec: QuantSpec, low: float, has_lower: bool) -> None:
    quantizer = module("pact", qparams_from_range(low, 1.3, spec))
    with torch.no_grad():
        quantizer.alpha.fill_(1.1)
        if has_lower:
            quantizer.lower.fill_(0.9)
    to_x = gradients(quantizer)
    high32 = np.float32(1.1)
    low32 = -np.float32(0.9) if has_lower else (-high32 if spec.signed else np.float32(0))
    above, below = high32 <= X, low32 >= X
    np.testing.assert_array_equal(to_x, np.where(above | below, 0, G))
    assert (quantizer.lower is not None) == has_lower
    wanted = G[above].sum(dtype=np.float64) - (G[below].sum(dtype=np.float64) if spec.signed else 0)
    assert float(quantizer.alpha.grad) == pytest.approx(wanted, rel=1e-4)
    if has_lower:
        assert float(quantizer.lower.grad) == pytest.approx(-G[below].sum(dtype=np.float64), rel=1e-4)
    assert quantizer.to_qparams() == qparams_from_range(low32, high32, spec)


@pytest.mark.parametrize("rounding", ["half_even", "floor"])
def test_soft_steps_have_the_slope_of_dsq(rounding: str) -> None:
    spec = QuantSpec("uint4", symmetric=False, rounding=rounding)  # type: ignore[arg-type]
    qparams = numbers(spec)
    to_x = gradients(module("dsq:0.3", qparams, "activation"))
    scale, zero_point = rows(qparams)
    t = 1 / (1 - 0.3)
    k = math.log((t + 1) / (t - 1))
    ratio = X / scale
    position = ratio - np.floor(ratio) - 0.5 if rounding == "half_even" else ratio - np.rint(ratio)
    slope = 0.5 * t * k * (1 - np.tanh(k * position) ** 2)
    within = (ratio > spec.qmin - zero_point - 0.5) & (ratio < spec.qmax - zero_point + 0.5)
    np.testing.assert_allclose(to_x, np.where(within, G * slope, 0), rtol=2e-3, atol=1e-5)


def test_soft_steps_make_up_for_one_step_each() -> None:
    from onnxq.torchnet.fake_quantize.dsq import soft_slope

    positions = torch.linspace(-0.5, 0.5, 10001, dtype=torch.float64)
    for alpha in (0.1, 0.4, 0.9):
        assert float(torch.trapezoid(soft_slope(positions, alpha), positions)) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("spec", [QuantSpec("int4"), QuantSpec("int4", granularity=PerChannel(1))], ids=str)
def test_fixed_lets_gradients_through_where_values_are_rounded_and_not_cut_off(spec: QuantSpec) -> None:
    qparams = numbers(spec)
    to_x = gradients(module("fixed", qparams))
    rounded = np.rint(X / rows(qparams)[0])
    np.testing.assert_array_equal(to_x, np.where((rounded >= -8) & (rounded <= 7), G, 0))


@pytest.mark.parametrize(
    ("kind", "dtype", "end"), [("nnie", "nnie8", 2 ** (1 / 32)), ("e4m3", "fp8_e4m3", 464), ("e5m2", "fp8_e5m2", 61440)]
)
def test_other_formats_let_gradients_through_up_to_where_they_saturate(kind: str, dtype: str, end: float) -> None:
    qparams = numbers(QuantSpec(dtype))
    to_x = gradients(module(kind, qparams))
    np.testing.assert_array_equal(to_x, np.where(np.abs(X) < end * float(qparams.scale), G, 0))


def test_the_largest_weight_keeps_its_gradient_while_the_scale_follows_it() -> None:
    quantizer = module("fixed", numbers(QuantSpec("int8", granularity=PerChannel(1))), "weight")
    quantizer.observing = True
    np.testing.assert_array_equal(gradients(quantizer), G)


def test_dropped_values_pass_their_gradient_on_and_nothing_is_dropped_in_eval_mode() -> None:
    qparams = numbers(QuantSpec("int2"))
    quantizer = module("qdrop:0.5", qparams, "activation")
    torch.manual_seed(0)
    leaf = torch.from_numpy(X).clone().requires_grad_()
    y = quantizer(leaf)
    y.sum().backward()
    float_ones = (y == leaf).detach().numpy()
    assert 0.3 < float_ones.mean() < 0.7
    assert leaf.grad is not None
    assert (leaf.grad.numpy()[float_ones] == 1).all()
    rest = module("lsq", qparams, "activation").eval()
    assert torch.equal(quantizer.eval()(leaf), rest(leaf))


@pytest.mark.parametrize("kind", ["lsq", "qdrop", "lsq_plus", "tqt", "pact"])
def test_infinities_saturate_without_spoiling_the_gradient(kind: str) -> None:
    x = X.copy()
    x[0, 0, 0], x[1, 1, 1] = np.inf, -np.inf
    quantizer = module(kind, numbers(QuantSpec("int4", power_of_two=True)), "activation")
    assert np.isfinite(gradients(quantizer, x)).all()
    assert all(bool(item.grad.isfinite().all()) for item in quantizer.parameters() if item.grad is not None)
