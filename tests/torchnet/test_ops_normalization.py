"""Normalization in torch: as onnxruntime has it, with live statistics, and with right gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.torchnet import TorchNet, to_torch
from tests.torchnet.one_node import assert_gradients, assert_like_onnxruntime, in_torch, net_of, one_node

RNG = np.random.default_rng(12)


def values(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.5, 2, shape).astype(np.float32)


IMAGE, MATRIX = values(3, 4, 5, 6), values(7, 4)
STATISTICS: list[np.ndarray | None] = [positive(4), values(4), values(4), positive(4)]

Case = tuple[str, list[np.ndarray | None], dict[str, Any]]

LIKE_ONNXRUNTIME: list[Case] = [
    ("BatchNormalization", [IMAGE, *STATISTICS], {"opset": 7}),
    ("BatchNormalization", [IMAGE, *STATISTICS], {"opset": 9, "epsilon": 0.01}),
    ("BatchNormalization", [MATRIX, *STATISTICS], {"opset": 15}),
    ("InstanceNormalization", [IMAGE, values(4), values(4)], {"opset": 6, "epsilon": 0.01}),
    ("InstanceNormalization", [values(2, 3, 9), values(3), values(3)], {"opset": 6}),
    ("InstanceNormalization", [values(1, 1, 1, 1), values(1), values(1)], {"opset": 6}),
    ("GroupNormalization", [values(1, 1, 1, 1), values(1), values(1)], {"opset": 21, "num_groups": 1}),
    ("LayerNormalization", [IMAGE, values(6), values(6)], {"opset": 17}),
    ("LayerNormalization", [IMAGE, values(5, 6)], {"opset": 17, "axis": 2}),
    ("LayerNormalization", [IMAGE, values(6), values(6)], {"opset": 17, "axis": -2}),
    ("LayerNormalization", [IMAGE, values(5, 6), values(5, 6)], {"opset": 17, "axis": -2, "outputs": 3}),
    ("GroupNormalization", [IMAGE, values(4), values(4)], {"opset": 21, "num_groups": 2}),
    ("GroupNormalization", [IMAGE, values(2), values(2)], {"opset": 18, "num_groups": 2}),
    ("LpNormalization", [IMAGE], {"opset": 7, "axis": 1}),
    ("LpNormalization", [IMAGE], {"opset": 7, "axis": -2, "p": 1}),
    ("MeanVarianceNormalization", [IMAGE], {"opset": 13}),
    ("MeanVarianceNormalization", [IMAGE], {"opset": 9, "axes": [1, 2, 3]}),
    ("LRN", [values(2, 9, 3, 3)], {"opset": 7, "size": 3, "alpha": 0.1, "bias": 2.0}),
    ("RMSNormalization", [IMAGE, values(6)], {"opset": 23, "epsilon": 0.01}),
    ("RMSNormalization", [IMAGE, values(4, 5, 6)], {"opset": 23, "axis": 1}),
]


@pytest.mark.parametrize(("op", "inputs", "how"), LIKE_ONNXRUNTIME)
def test_norms_are_those_of_onnxruntime(op: str, inputs: list[np.ndarray | None], how: dict[str, Any]) -> None:
    assert_like_onnxruntime(op, inputs, tolerance=1e-5, **how)


def test_an_even_region_has_one_channel_more_behind_than_before() -> None:
    x = values(1, 6, 2, 2)
    (found,) = in_torch(one_node("LRN", [x], opset=13, size=4, alpha=0.5), [x])
    sums = np.stack([np.square(x[:, max(0, c - 1) : c + 3]).sum(axis=1) for c in range(6)], axis=1)
    np.testing.assert_allclose(found, x / (1 + 0.5 / 4 * sums) ** 0.75, rtol=1e-5)


def test_a_batch_norm_of_opset_6_may_have_statistics_for_each_position() -> None:
    numbers = [positive(4, 5, 6), values(4, 5, 6), values(4, 5, 6), positive(4, 5, 6)]
    flat: list[np.ndarray | None] = [IMAGE, *(number.reshape(-1) for number in numbers)]
    (found,) = in_torch(one_node("BatchNormalization", flat, opset=6, spatial=0, is_test=1), flat)
    gamma, beta, mean, variance = numbers
    np.testing.assert_allclose(found, (IMAGE - mean) / np.sqrt(variance + 1e-5) * gamma + beta, rtol=1e-4, atol=1e-5)


def test_a_half_precision_batch_norm_with_wide_statistics_keeps_its_type() -> None:
    half = IMAGE.astype(np.float16)
    model = one_node("BatchNormalization", [half, *STATISTICS], opset=15, kind=TensorProto.FLOAT16)
    (found,) = in_torch(model, [half, *STATISTICS])
    wide = one_node("BatchNormalization", [IMAGE, *STATISTICS], opset=15)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, in_torch(wide, [IMAGE, *STATISTICS])[0], rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize(("opset", "how"), [(9, {"outputs": 5}), (14, {"outputs": 3, "training_mode": 1})])
def test_training_mode_gives_the_running_statistics(opset: int, how: dict[str, Any]) -> None:
    model = one_node("BatchNormalization", [IMAGE, *STATISTICS], opset=opset, momentum=0.8, **how)
    y, mean, variance, *_ = in_torch(model, [IMAGE, *STATISTICS])
    found_mean, found_variance = IMAGE.mean(axis=(0, 2, 3)), IMAGE.var(axis=(0, 2, 3))
    gamma, beta, old_mean, old_variance = STATISTICS
    np.testing.assert_allclose(mean, 0.8 * old_mean + 0.2 * found_mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(variance, 0.8 * old_variance + 0.2 * found_variance, rtol=1e-4)
    np.testing.assert_allclose(y.mean(axis=(0, 2, 3)), beta, atol=1e-4)
    assert gamma is not None


# ---- live statistics -------------------------------------------------------------------------------------------------


def batch_norm() -> TorchNet:
    model = one_node("BatchNormalization", [IMAGE, *STATISTICS], opset=15, constants=[1, 2, 3, 4], momentum=0.7)
    return to_torch(Graph.from_model(model))


def test_statistics_are_buffers_and_factors_are_parameters() -> None:
    net = batch_norm()
    assert {name for name, _ in net.named_parameters()} == {"i1", "i2"}
    assert {name for name, _ in net.named_buffers()} == {"i3", "i4"}


def test_frozen_statistics_are_used_and_kept_in_training() -> None:
    net = batch_norm().train()
    before = net.value("i3").clone()
    y = net(torch.from_numpy(IMAGE))
    assert torch.equal(y, net.eval()(torch.from_numpy(IMAGE)))
    assert torch.equal(net.value("i3"), before)


@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (7, 4), (2, 4, 3)])
def test_live_statistics_are_those_of_the_batch_and_are_learnt(shape: tuple[int, ...]) -> None:
    net = batch_norm().train()
    net.mode.live_statistics = True
    x = torch.from_numpy(values(*shape))
    mean, variance = net.value("i3").clone(), net.value("i4").clone()
    y = net(x)
    axes = [axis for axis in range(x.dim()) if axis != 1]
    wide = [-1 if axis == 1 else 1 for axis in range(x.dim())]
    found_variance, found_mean = torch.var_mean(x, dim=axes, correction=0)
    torch.testing.assert_close(net.value("i3"), 0.7 * mean + 0.3 * found_mean)
    torch.testing.assert_close(net.value("i4"), 0.7 * variance + 0.3 * found_variance)
    normal = (x - found_mean.reshape(wide)) / torch.sqrt(found_variance.reshape(wide) + 1e-5)
    wanted = normal * net.value("i1").reshape(wide) + net.value("i2").reshape(wide)
    torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-5)


def test_a_second_run_for_the_gradients_learns_nothing() -> None:
    net = batch_norm().train()
    net.mode.live_statistics = True
    net.recomputing(True)
    before = net.value("i4").clone()
    net(torch.from_numpy(IMAGE))
    assert torch.equal(net.value("i4"), before)


def test_statistics_that_are_inputs_of_the_model_are_never_changed() -> None:
    net = to_torch(Graph.from_model(one_node("BatchNormalization", [IMAGE, *STATISTICS], opset=15))).train()
    net.mode.live_statistics = True
    given = [torch.from_numpy(value) for value in (IMAGE, *STATISTICS) if value is not None]
    kept = given[3].clone()
    net(*given)
    assert torch.equal(given[3], kept)


def test_one_value_per_channel_can_be_normalized_live() -> None:
    net = batch_norm().train()
    net.mode.live_statistics = True
    y = net(torch.ones(1, 4))
    torch.testing.assert_close(y[0], net.value("i2"))


# ---- gradients and refusals ------------------------------------------------------------------------------------------


def doubles(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape)


GRADIENTS: list[Case] = [
    ("BatchNormalization", [doubles(2, 3, 2, 2), *map(np.abs, [doubles(3) + 2] * 4)], {"opset": 15}),
    ("InstanceNormalization", [doubles(2, 2, 3, 2), doubles(2), doubles(2)], {"opset": 6}),
    ("LayerNormalization", [doubles(2, 3, 4), doubles(3, 4), doubles(3, 4)], {"opset": 17, "axis": 1}),
    ("LayerNormalization", [doubles(2, 3, 4), doubles(4)], {"opset": 17, "axis": 1, "outputs": 3}),
    ("RMSNormalization", [doubles(2, 3, 4), doubles(4)], {"opset": 23}),
    ("GroupNormalization", [doubles(2, 4, 3), doubles(4), doubles(4)], {"opset": 21, "num_groups": 2}),
    ("GroupNormalization", [doubles(2, 4, 3), doubles(2), doubles(2)], {"opset": 18, "num_groups": 2}),
    ("LpNormalization", [doubles(2, 3)], {"opset": 7}),
    ("MeanVarianceNormalization", [doubles(2, 2, 3, 2)], {"opset": 13}),
    ("LRN", [doubles(1, 5, 2, 2)], {"opset": 13, "size": 3, "alpha": 0.5}),
]


@pytest.mark.parametrize(("op", "inputs", "how"), GRADIENTS)
def test_gradients_of_norms(op: str, inputs: list[np.ndarray | None], how: dict[str, Any]) -> None:
    assert_gradients(op, inputs, **how)


def test_a_norm_of_another_order_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="p=3; ONNX allows 1 and 2"):
        net_of(one_node("LpNormalization", [MATRIX], opset=7, p=3))


def test_the_mean_of_half_precision_is_not_rounded() -> None:
    x = np.array([8.0, 8.0, 8.03125], np.float16).reshape(1, 1, 1, 3)
    (half,) = in_torch(one_node("MeanVarianceNormalization", [x], opset=13, kind=TensorProto.FLOAT16), [x])
    single = x.astype(np.float64)
    np.testing.assert_allclose(half, (single - single.mean()) / single.std(), rtol=2e-3)


@pytest.mark.parametrize(
    ("op", "how"),
    [
        ("LRN", {"opset": 13, "size": 3, "alpha": 0.1}),
        ("LpPool", {"opset": 18, "kernel_shape": [1, 1], "p": 3}),
        ("GlobalLpPool", {"opset": 13, "p": 3}),
    ],
)
def test_powers_of_half_precision_do_not_overflow(op: str, how: dict[str, Any]) -> None:
    x = np.full((1, 2, 1, 1), 300.0, np.float16)
    (half,) = in_torch(one_node(op, [x], kind=TensorProto.FLOAT16, **how), [x])
    (single,) = in_torch(one_node(op, [x.astype(np.float32)], **how), [x.astype(np.float32)])
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, single, rtol=1e-3)
