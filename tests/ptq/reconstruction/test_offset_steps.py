"""Steps of AutoRound: C, torch and autograd agree; a single product is rounded by what all of its positions say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from onnxq.numerics import qparams_from_range
from onnxq.ptq.reconstruction.fitting import offset_steps
from onnxq.ptq.reconstruction.fitting.offset_steps import Offsets
from onnxq.torchnet.fake_quantize.layout import layout_of
from onnxq.types import PerBlock, PerChannel, PerTensor, QuantSpec
from onnxq.types.granularity import Granularity
from tests.ptq.reconstruction.small_models import case
from tests.zoo_graphs.net import Net

FORMATS = [QuantSpec("uint4", symmetric=False), QuantSpec("int4"), QuantSpec("int4", signed_scale=True)]
LAYOUTS: list[tuple[Granularity, tuple[int, ...]]] = [
    (PerTensor(), (40, 9)),
    (PerChannel(0), (9, 5, 3)),
    (PerChannel(1), (40, 70)),
    (PerChannel(1), (3, 5, 7)),
    (PerBlock(0, 16), (48, 70)),
    (PerBlock(1, 16), (9, 40)),
]


def offsets_of(spec: QuantSpec, shape: tuple[int, ...]) -> tuple[Offsets, Tensor, Tensor]:
    """Some weights that saturate too, each with an offset; scale and zero point, spread."""
    random = np.random.default_rng(0)
    values = torch.from_numpy(random.standard_normal(shape).astype(np.float32))
    cells = spec.scale_shape(shape)
    held = qparams_from_range(-random.uniform(0.5, 2, cells), random.uniform(0.5, 2, cells), spec)
    scale, zero = (torch.from_numpy(np.array(part, np.float32)) for part in (held.scale, held.zero_point))
    layout = layout_of(shape, scale, spec, "w")
    exact = layout.split(values).contiguous()
    offset = torch.from_numpy(random.uniform(-0.5, 0.5, exact.shape).astype(np.float32))
    return Offsets(exact, offset, spec), layout.spread(scale), layout.spread(zero)


def whole(values: Tensor) -> Tensor:
    return values + (values.round() - values).detach()


@pytest.mark.parametrize(("granularity", "shape"), LAYOUTS, ids=str)
@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("in_c", [True, False])
def test_a_step_follows_the_gradients_of_autograd(
    in_c: bool, form: QuantSpec, granularity: Granularity, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_c:
        monkeypatch.setattr(offset_steps, "gradients", None)
    offsets, scale, zero = offsets_of(form.replace(granularity=granularity), shape)
    low, high = offsets.ends
    learnt = [part.clone().requires_grad_() for part in (offsets.offset, scale, zero.expand_as(scale))]
    offset, own_scale, own_zero = learnt
    steps = (whole(offsets.exact / own_scale + offset) + own_zero).clamp(low, high)
    made = (steps - own_zero) * own_scale
    torch.testing.assert_close(offsets.values(scale, zero), made.detach(), rtol=1e-6, atol=1e-6)
    gradient = torch.randn(made.shape, generator=torch.Generator().manual_seed(0))
    made.backward(gradient)
    before = offsets.offset.clone()
    to_scale, to_zero = offsets.descend(gradient, scale, zero, 0.125)
    wanted = (before - 0.125 * offset.grad.sign()).clamp(-0.5, 0.5)
    torch.testing.assert_close(offsets.offset, wanted)
    torch.testing.assert_close(to_scale, own_scale.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(to_zero, own_zero.grad, rtol=1e-4, atol=1e-4)


def test_a_block_that_is_one_product_is_rounded_so_that_its_columns_make_up_for_each_other() -> None:
    random = np.random.default_rng(0)
    net = Net("head")
    x = net.input("x", [1, 24, 16])
    mixed = net.node("Relu", net.linear(x, 16, 16))
    logits = net.node("MatMul", net.node("Softmax", mixed, axis=-1), net.floats(random.standard_normal((16, 40))))
    net.output(logits)
    samples = [{"x": random.standard_normal((1, 24, 16)).astype(np.float32)} for _ in range(24)]
    made = case(net.model(), samples, "weight_only:bits=4,block=16")
    done = made.run("autoround:iterations=20")
    head = done.details["blocks"][-1]
    assert head["kept"]
    assert len(head["layers"]) == 1
    assert head["after"] < 0.8 * head["before"]
    name = head["weights"][0]
    assert done.state.qparams[name] == made.state.qparams[name]  # numbers, not ranges
    assert made.evaluator(done.state).value > made.evaluator(made.state).value
