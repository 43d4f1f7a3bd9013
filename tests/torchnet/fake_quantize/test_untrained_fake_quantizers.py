"""Untrained fake-quantizers compute `onnxq.numerics` bit for bit, whatever the kind, format, granularity, rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnxq.errors import SpecError
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS
from onnxq.types import PerChannel, QParams, QuantSpec
from onnxq.types.fake_quantizers import KINDS
from onnxq.types.spec import ROUNDINGS, Rounding
from tests.torchnet.fake_quantize.cases import (
    SHAPE,
    every_spec,
    fitting,
    hard_values,
    module,
    numbers,
    same_bits,
    some_specs,
)


def test_every_kind_has_a_module() -> None:
    assert set(FAKE_QUANTIZERS) >= {name for name, kind in KINDS.items() if "plugin" not in kind.summary}


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_format_gives_the_bits_of_numerics(kind: str) -> None:
    tried = 0
    for seed, spec in enumerate(spec for item in every_spec() if (spec := fitting(kind, item)) is not None):
        qparams = numbers(spec, seed=seed)
        quantizer = module(kind, qparams)
        x = hard_values(qparams, seed)
        expected = fake_quantize(x, qparams)
        assert quantizer.to_qparams() == qparams, spec
        for training in (True, False):
            found = quantizer.train(training)(torch.from_numpy(x).requires_grad_())
            assert same_bits(found, expected), (str(spec), training)
        tried += 1
    assert tried > 0


@pytest.mark.parametrize("kind", ["dorefa", "adaround"])
def test_kinds_with_latent_weights_start_where_the_weights_are(kind: str) -> None:
    for seed, spec in enumerate(spec for item in every_spec() if (spec := fitting(kind, item)) is not None):
        qparams = numbers(spec, seed=seed)
        quantizer = module(kind, qparams).eval()
        x = hard_values(qparams, seed)
        x = np.where(np.isfinite(x) & (np.abs(x) < 1e30), x, np.float32(0.25))
        latent = quantizer.latent(torch.from_numpy(x))
        assert same_bits(quantizer(latent), fake_quantize(x, qparams)), str(spec)


PAIRS = [(kind, spec) for kind in KINDS for item in some_specs() if (spec := fitting(kind, item)) is not None]


@pytest.mark.parametrize(("kind", "spec"), PAIRS, ids=str)
def test_what_is_written_to_the_file_quantizes_to_what_forward_gives(kind: str, spec: QuantSpec) -> None:
    quantizer = module(kind, numbers(spec))
    weights = torch.from_numpy(np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32))
    trained = quantizer.latent(weights).clone().requires_grad_()
    optimizer = torch.optim.SGD([trained, *quantizer.parameters()], lr=0.02)
    for _ in range(3):
        optimizer.zero_grad()
        loss = (quantizer(trained) - 0.3).square().sum() + 0 * trained.sum()
        loss.backward()
        optimizer.step()
    quantizer.eval()
    written = fake_quantize(quantizer.export_values(trained).numpy(), quantizer.to_qparams())
    assert same_bits(quantizer(trained), written)


@settings(max_examples=150, deadline=None)
@given(
    x=arrays.arrays(np.float32, (3, 4), elements=st.floats(width=32, allow_nan=False)),
    scale=st.floats(2.0**-62, 2.0**60, width=32),
    bits=st.integers(1, 16),
    signed=st.booleans(),
    rounding=st.sampled_from(ROUNDINGS),
    data=st.data(),
)
def test_any_value_scale_and_zero_point_give_the_bits_of_numerics(
    x: np.ndarray, scale: float, bits: int, signed: bool, rounding: Rounding, data: st.DataObject
) -> None:
    spec = QuantSpec(f"{'' if signed else 'u'}int{bits}", symmetric=False, rounding=rounding)
    zero_point = data.draw(st.integers(spec.qmin, spec.qmax))
    qparams = QParams(spec, np.float32(scale), np.int32(zero_point))
    assert same_bits(module("fixed", qparams)(torch.from_numpy(x)), fake_quantize(x, qparams))
    rows = QParams(
        spec.replace(granularity=PerChannel(0)), np.full(3, scale, np.float32), np.full(3, zero_point, np.int32)
    )
    assert same_bits(module("lsq_plus", rows)(torch.from_numpy(x)), fake_quantize(x, rows))


@settings(max_examples=100, deadline=None)
@given(
    x=arrays.arrays(np.float32, (2, 9), elements=st.floats(width=32)),
    scale=st.floats(2.0**-62, 2.0**60, width=32),
    dtype=st.sampled_from(["fp8_e4m3", "fp8_e5m2", "fp16", "bf16", "bfp16"]),
)
def test_floating_point_formats_keep_nan_and_round_any_value(x: np.ndarray, scale: float, dtype: str) -> None:
    spec = QuantSpec(dtype)
    qparams = QParams(spec, np.float32(scale if spec.has_scale else 1), np.int32(0))
    found = module("fixed", qparams)(torch.from_numpy(x)).numpy()
    with np.errstate(invalid="ignore"):
        expected = fake_quantize(x, qparams)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert same_bits(torch.from_numpy(np.nan_to_num(found)), np.nan_to_num(expected))


@pytest.mark.parametrize("clip", [1.0, 0.37, 3.5e-5, 2e4])
def test_nnie_codes_change_at_the_same_numbers(clip: float) -> None:
    qparams = qparams_from_range(-clip, clip, QuantSpec("nnie8"))
    steps = np.arange(-180, 20) / 32  # borders between codes are at odd multiples
    near = (float(qparams.scale) * np.exp2(steps)).astype(np.float32)
    x = np.concatenate([near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf))])
    x = np.concatenate([x, -x, np.float32([0, -0.0, np.inf, -np.inf])])
    assert same_bits(module("nnie", qparams)(torch.from_numpy(x)), fake_quantize(x, qparams))


@pytest.mark.parametrize("spec", some_specs(), ids=str)
def test_nan_passes_so_that_training_shows_it(spec: QuantSpec) -> None:
    x = np.zeros(SHAPE, np.float32)
    x[1, 2, 3] = np.nan
    quantizer = module("fixed", numbers(spec))
    quantizer.observing = True
    before = quantizer.to_qparams()
    found = quantizer(torch.from_numpy(x))
    assert int(found.isnan().sum()) == 1
    assert bool(found[1, 2, 3].isnan())
    assert quantizer.to_qparams() == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_are_computed_in_float32_and_returned(dtype: torch.dtype) -> None:
    qparams = numbers(QuantSpec("int8"))
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    found = module("lsq", qparams)(x)
    assert found.dtype == dtype
    expected = torch.from_numpy(fake_quantize(x.detach().float().numpy(), qparams)).to(dtype)
    assert torch.equal(found, expected)
    found.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == dtype


def test_channels_last_values_give_the_same_numbers_and_gradients() -> None:
    qparams = numbers(QuantSpec("uint8", symmetric=False))
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    results = []
    for values in (x, x.to(memory_format=torch.channels_last)):
        quantizer = module("lsq_plus", qparams)
        leaf = values.detach().requires_grad_()
        quantizer(leaf).square().sum().backward()
        results.append((quantizer(leaf).detach(), leaf.grad, quantizer.scale.grad, quantizer.zero_point.grad))
    for plain, permuted in zip(*results, strict=True):
        torch.testing.assert_close(plain, permuted, rtol=1e-5, atol=1e-5)


def test_without_quantizing_values_pass_unchanged() -> None:
    quantizer = module("fixed", numbers(QuantSpec("int2")))
    quantizer.quantizing = False
    x = torch.randn(SHAPE)
    assert quantizer(x) is x


def test_values_of_another_shape_are_refused_with_the_name_of_the_tensor() -> None:
    quantizer = module("fixed", numbers(QuantSpec("int8", granularity=PerChannel(1))))
    with pytest.raises(SpecError, match=r"'t' has values of shape \(4, 3, 6\), which need scales of shape \(3,\)"):
        quantizer(torch.zeros(4, 3, 6))


@pytest.mark.parametrize(
    ("kind", "spec", "words"),
    [
        ("tqt", QuantSpec("int8"), "needs a format with power_of_two = True"),
        ("pact", QuantSpec("int8", granularity=PerChannel(1)), "needs a format with per_channel = False"),
        ("nnie", QuantSpec("int8"), "needs a format with dtype = nnie8"),
    ],
)
def test_a_format_that_the_kind_cannot_have_is_refused(kind: str, spec: QuantSpec, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        module(kind, numbers(spec))
