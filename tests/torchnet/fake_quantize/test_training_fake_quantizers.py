"""Fake-quantizers in training: ranges that are followed, scales that are learnt, states that are kept."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.numerics.ranges import with_minimum_scale
from onnxq.torchnet.fake_quantize.observing import MOMENTUM, range_of
from onnxq.types import PerBlock, PerChannel, QuantSpec
from onnxq.types.fake_quantizers import KINDS
from tests.torchnet.fake_quantize.cases import (
    SHAPE,
    every_spec,
    fitting,
    hard_values,
    module,
    numbers,
    role_of,
    same_bits,
    some_specs,
)

PAIRS = [(kind, spec) for kind in KINDS for item in some_specs() if (spec := fitting(kind, item)) is not None]
LEARNT = ["lsq", "lsq_plus", "tqt", "pact", "qdrop"]


def some_values(seed: int = 3, width: float = 1.0) -> np.ndarray:
    return (width * np.random.default_rng(seed).standard_normal(SHAPE)).astype(np.float32)


def block_range(x: np.ndarray, spec: QuantSpec) -> tuple[np.ndarray, np.ndarray]:
    """Minimum and maximum for each scale, found by going through them one by one."""
    if not isinstance(spec.scale_granularity, PerChannel | PerBlock):
        return x.min(), x.max()
    axis = spec.granularity.axis % x.ndim
    if isinstance(spec.granularity, PerChannel):
        others = tuple(i for i in range(x.ndim) if i != axis)
        return x.min(axis=others), x.max(axis=others)
    size = spec.granularity.size
    parts = np.split(x, range(size, x.shape[axis], size), axis=axis)
    return np.stack([p.min(axis) for p in parts], axis), np.stack([p.max(axis) for p in parts], axis)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "weight" in KINDS[kind].roles])
def test_an_observed_weight_has_the_numbers_of_its_present_range(kind: str) -> None:
    for seed, item in enumerate(every_spec()[:: 1 if kind == "fixed" else 5]):
        spec = fitting(kind, item)
        if spec is None or spec.dtype == "int32" or not spec.has_scale:
            continue
        start = with_minimum_scale(numbers(spec, seed=seed), 0.04)
        quantizer = module(kind, start, "weight", minimum_scale=0.04)
        quantizer.observing = True
        x = some_values(seed, 3)
        x[:, 3] *= 1e-3  # a channel whose scale is raised to the smallest
        quantizer.eval()(torch.from_numpy(x))
        assert quantizer.to_qparams() == start, "eval mode observes nothing"
        found = quantizer.train()(torch.from_numpy(x))
        expected = with_minimum_scale(qparams_from_range(*block_range(x, spec), spec), 0.04)
        assert quantizer.to_qparams() == expected, str(spec)
        assert same_bits(found, fake_quantize(x, expected)), str(spec)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "activation" in KINDS[kind].roles])
def test_an_observed_activation_averages_the_ranges_of_batches(kind: str) -> None:
    for item in some_specs():
        spec = fitting(kind, item)
        if spec is None or not spec.has_scale:
            continue
        qparams = numbers(spec)
        quantizer = module(kind, qparams, "activation")
        quantizer.observing = True
        low, high = range_of(qparams)
        for seed in range(4):
            x = some_values(seed, 1 + seed)
            quantizer(torch.from_numpy(x))
            batch = block_range(x, spec)
            low = MOMENTUM * low + (1 - MOMENTUM) * batch[0].astype(np.float64)
            high = MOMENTUM * high + (1 - MOMENTUM) * batch[1].astype(np.float64)
        found, expected = quantizer.to_qparams(), qparams_from_range(low, high, spec)
        np.testing.assert_allclose(found.scale, expected.scale, rtol=1e-6)
        np.testing.assert_array_equal(found.zero_point, expected.zero_point)


@pytest.mark.parametrize("spec", some_specs(), ids=str)
def test_the_range_of_parameters_asks_for_these_parameters(spec: QuantSpec) -> None:
    if not spec.has_scale:
        assert module("fixed", numbers(spec)).averages is False
        return
    qparams = numbers(spec)
    again = qparams_from_range(*range_of(qparams), spec)
    np.testing.assert_allclose(again.scale, qparams.scale, rtol=1e-6)
    np.testing.assert_array_equal(again.zero_point, qparams.zero_point)


@pytest.mark.parametrize(("kind", "spec"), PAIRS, ids=str)
def test_a_state_that_was_kept_gives_the_same_bits_again(kind: str, spec: QuantSpec) -> None:
    qparams = numbers(spec)
    quantizer = module(kind, qparams)
    weights = torch.from_numpy(some_values())
    trained = quantizer.latent(weights).clone().requires_grad_()
    quantizer.observing = True
    quantizer(trained)
    quantizer.observing = False
    optimizer = torch.optim.SGD([trained, *quantizer.parameters()], lr=0.05)
    quantizer(trained).square().sum().add(0 * trained.sum()).backward()
    optimizer.step()

    resumed = module(kind, qparams)
    resumed.latent(weights)
    resumed.load_state_dict(quantizer.state_dict())
    assert resumed.to_qparams() == quantizer.to_qparams()
    for one, other in ((quantizer, resumed), (quantizer, copy.deepcopy(quantizer))):
        one.eval(), other.eval()
        assert torch.equal(one(trained.detach()), other(trained.detach()))
        assert torch.equal(one.export_values(trained), other.export_values(trained))


@pytest.mark.parametrize("kind", LEARNT)
@pytest.mark.parametrize("rate", [1e3, -1e3, 0.7])
def test_scales_stay_legal_after_hostile_steps(kind: str, rate: float) -> None:
    for item in some_specs():
        spec = fitting(kind, item)
        if spec is None or not spec.has_scale or spec.dynamic:
            continue
        quantizer = module(kind, numbers(spec), minimum_scale=0.01)
        optimizer = torch.optim.SGD(quantizer.parameters(), lr=1.0)
        for step in range(4):
            optimizer.zero_grad()
            quantizer(torch.from_numpy(some_values(step, 4))).sum().mul(rate * (-1) ** step).backward()
            optimizer.step()
            found = quantizer.to_qparams()  # QParams refuses scales that are not above zero
            assert (found.scale >= np.float32(0.01)).all(), str(spec)
            if spec.power_of_two:
                assert (np.frexp(found.scale)[0] == 0.5).all()
            x = hard_values(found, step)
            assert same_bits(quantizer(torch.from_numpy(x)), fake_quantize(x, found)), str(spec)


def test_a_scale_at_zero_is_raised_and_can_grow_again() -> None:
    quantizer = module("lsq", numbers(QuantSpec("int4")), minimum_scale=0.5)
    quantizer.scale.data.zero_()
    assert float(quantizer.to_qparams().scale) == 0.5
    quantizer.scale.data.fill_(1e-3)
    quantizer(torch.full((4, 8), 100.0)).sum().backward()
    assert float(quantizer.scale.grad) > 0


@pytest.mark.parametrize("kind", LEARNT)
def test_learning_brings_a_scale_that_is_far_too_wide_near_the_best_one(kind: str) -> None:
    spec = QuantSpec("int4", power_of_two=kind == "tqt")
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32))

    def error(scale: float) -> float:
        qparams = qparams_from_range(-scale * 7, scale * 7, spec)
        return float(np.square(fake_quantize(x.numpy(), qparams) - x.numpy()).mean())

    best = min((error(2.0 ** (step / 4)), 2.0 ** (step / 4)) for step in range(-20, 8))
    quantizer = module(kind, qparams_from_range(-16.0, 16.0, spec))
    start = float(quantizer.to_qparams().scale)
    optimizer = torch.optim.Adam(quantizer.parameters(), lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        (quantizer(x) - x).square().mean().backward()
        optimizer.step()
    found = float(quantizer.to_qparams().scale)
    # PACT has no gradient from values inside the range: with nothing cut off, nothing moves.
    if kind == "pact":
        assert found == start
    else:
        assert error(found) < 1.15 * best[0] < 0.2 * error(start)


def test_pact_widens_a_range_that_cuts_too_much_off() -> None:
    quantizer = module("pact", qparams_from_range(-0.2, 0.2, QuantSpec("int8")))
    x = torch.from_numpy(some_values(width=2.0))
    optimizer = torch.optim.Adam(quantizer.parameters(), lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        (quantizer(x) - x).square().mean().backward()
        optimizer.step()
    assert float(quantizer.alpha.detach()) > 3


def test_dorefa_trains_its_latent_weights_and_keeps_the_largest() -> None:
    spec = QuantSpec("int4", granularity=PerChannel(1))
    quantizer = module("dorefa", numbers(spec, width=0.5))
    weights = torch.from_numpy(some_values(width=0.2))
    latent = quantizer.latent(weights)
    assert torch.equal(quantizer.export_values(latent), weights)
    trained = latent.clone().requires_grad_()
    target = torch.from_numpy(some_values(9, 0.1))
    optimizer = torch.optim.SGD([trained], lr=0.1)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (quantizer(trained) - target).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert float(quantizer.export_values(trained).abs().max()) == pytest.approx(float(weights.abs().max()), rel=1e-5)


def test_dorefa_of_weights_that_are_all_zero() -> None:
    quantizer = module("dorefa", numbers(QuantSpec("int4")))
    zeros = torch.zeros(SHAPE)
    assert torch.equal(quantizer(quantizer.latent(zeros)), zeros)


@pytest.mark.parametrize("rounding", ["half_even", "half_up", "half_away", "half_to_zero", "floor"])
def test_adaround_is_soft_in_training_and_decides_for_every_weight(rounding: str) -> None:
    spec = QuantSpec("int4", granularity=PerBlock(1, 4), rounding=rounding)  # type: ignore[arg-type]
    qparams = qparams_from_range(np.full((4, 3, 6), -2.0), np.full((4, 3, 6), 2.0), spec)
    quantizer = module("adaround", qparams)
    weights = torch.from_numpy(np.clip(some_values(), -1.9, 1.9))
    assert torch.equal(quantizer.latent(weights), weights)
    if rounding != "floor":
        torch.testing.assert_close(quantizer.train()(weights), weights, rtol=0, atol=1e-3)
    before = quantizer.regularization(2.0).item()
    optimizer = torch.optim.Adam(quantizer.parameters(), lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        (10 * (quantizer(weights).sum() - 20).square() / weights.numel() + quantizer.regularization(2.0)).backward()
        optimizer.step()
    assert quantizer.regularization(2.0).item() < 0.1 * before
    hard = quantizer.eval()(weights)
    steps = (hard / weights.new_tensor(qparams.scale[0, 0, 0])).round()
    lower = (weights / weights.new_tensor(qparams.scale[0, 0, 0])).floor()
    assert set((steps - lower).unique().tolist()) <= {0.0, 1.0}
    assert same_bits(hard, fake_quantize(quantizer.export_values(weights).numpy(), quantizer.to_qparams()))
    assert not torch.equal(hard, torch.from_numpy(fake_quantize(weights.numpy(), qparams)))


def test_kinds_that_learn_a_scale_or_a_rounding_do_not_observe_by_default() -> None:
    from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS

    silent = {name for name in KINDS if name in FAKE_QUANTIZERS and not FAKE_QUANTIZERS.get(name).observes_by_default}
    assert silent == {*LEARNT, "adaround"}


@pytest.mark.parametrize("kind", LEARNT)
def test_observing_sets_a_learnt_scale_anew_and_learning_goes_on_from_there(kind: str) -> None:
    spec = QuantSpec("int4", power_of_two=kind == "tqt")
    quantizer = module(kind, numbers(spec, width=0.1), role_of(kind))
    parameters = dict(quantizer.named_parameters())
    quantizer.observing = True
    x = torch.from_numpy(some_values(width=8))
    for _ in range(60):
        quantizer(x)
    wide = float(quantizer.to_qparams().scale)
    assert wide > 10 * float(numbers(spec, width=0.1).scale)
    assert all(dict(quantizer.named_parameters())[name] is item for name, item in parameters.items())
    quantizer.observing = False
    quantizer(x).square().sum().backward()
    assert all(item.grad is not None for item in parameters.values())


def test_a_module_of_tied_tensors_follows_all_of_them_from_the_next_step_on() -> None:
    spec = QuantSpec("uint8", symmetric=False)
    start = qparams_from_range(-1.0, 1.0, spec)
    quantizer = module("fixed", start, "activation")
    quantizer.observing = quantizer.shared = True
    for low, high in ((-3.0, 1.0), (-1.0, 5.0)):
        quantizer(torch.tensor([low, high]))
        assert quantizer.to_qparams() == start
    whole = module("fixed", start, "activation")
    whole.observing = True
    whole(torch.tensor([-3.0, 5.0]))
    kept = pickle.loads(pickle.dumps(quantizer)).state_dict()
    assert all(torch.equal(kept[name], value) for name, value in whole.state_dict().items())
    quantizer.catch_up()
    assert quantizer.to_qparams() == whole.to_qparams()
