"""Biases whose scale follows those of an input and a weight."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from onnxq.errors import SpecError
from onnxq.numerics import derived_bias_scale, fake_quantize, qparams_from_range
from onnxq.torchnet.fake_quantize import DerivedBias, FakeQuantize
from onnxq.types import BiasOf, PerBlock, PerChannel, Placement, QuantSpec
from tests.torchnet.fake_quantize.cases import module, same_bits

BIAS = np.array([0.1, -0.25, 3.0, -1e-9, 7e8], np.float32)


def parts(weight_spec: QuantSpec, dtype: str = "int32") -> tuple[FakeQuantize, FakeQuantize, DerivedBias]:
    shape = weight_spec.scale_shape((5, 4))
    input = module("lsq", qparams_from_range(-1.0, 3.0, QuantSpec("uint8", symmetric=False)), "activation")
    weight = module("lsq", qparams_from_range(np.full(shape, -0.5), np.full(shape, 0.7), weight_spec), "weight")
    granularity = PerChannel(0) if shape else QuantSpec().granularity
    spec = QuantSpec(dtype, granularity=granularity)
    placement = Placement("bias", spec, "bias", "test", derive=BiasOf("x", "w"))
    return input, weight, DerivedBias(placement, input, weight, spec)


@pytest.mark.parametrize("weight_spec", [QuantSpec("int8"), QuantSpec("int4", granularity=PerChannel(0))], ids=str)
@pytest.mark.parametrize("dtype", ["int32", "int16"])
def test_the_scale_is_the_product_of_the_two_and_follows_them(weight_spec: QuantSpec, dtype: str) -> None:
    input, weight, bias = parts(weight_spec, dtype)
    for factor in (1.0, 1.37, 0.2):
        with torch.no_grad():
            input.scale.mul_(factor)
            weight.scale.mul_(factor)
        found = bias.to_qparams()
        np.testing.assert_array_equal(found.scale, derived_bias_scale(input.to_qparams(), weight.to_qparams()))
        assert same_bits(bias(torch.from_numpy(BIAS)), fake_quantize(BIAS, found))


def test_the_gradient_goes_to_the_bias_alone() -> None:
    input, weight, bias = parts(QuantSpec("int8", granularity=PerChannel(0)))
    values = torch.from_numpy(BIAS).requires_grad_()
    bias(values).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1, 1, 1, 1, 0]  # the last one saturates
    assert input.scale.grad is None
    assert weight.scale.grad is None


def test_nothing_of_the_two_is_in_the_state_and_a_copy_follows_its_own() -> None:
    input, weight, bias = parts(QuantSpec("int8"))
    net = nn.ModuleDict({"input": input, "weight": weight, "bias": bias})
    assert not any(name.startswith("bias") for name in net.state_dict())
    assert len(list(bias.modules())) == 1
    copied = copy.deepcopy(net)
    with torch.no_grad():
        input.scale.mul_(2)
    assert float(copied["bias"].to_qparams().scale) * 2 == float(bias.to_qparams().scale)
    bias.observing = True
    bias(torch.from_numpy(BIAS))


def test_what_cannot_derive_a_scale_is_refused_with_the_name_of_the_bias() -> None:
    with pytest.raises(SpecError, match="bias 'bias': a bias cannot follow a weight quantized per block"):
        parts(QuantSpec("int8", granularity=PerBlock(0, 2)))
    input, weight, _ = parts(QuantSpec("int8"))
    placement = Placement("bias", QuantSpec("int8"), "bias", "test", derive=BiasOf("x", "w"))
    with pytest.raises(SpecError, match="must be symmetric"):
        DerivedBias(placement, input, weight, QuantSpec("uint8", symmetric=False))
