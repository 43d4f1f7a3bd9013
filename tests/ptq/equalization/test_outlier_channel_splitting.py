"""Outlier channel splitting: more channels, the same float model, and a smaller step for all other weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from onnxq.errors import ConfigError
from tests.ptq.equalization.prepared import PER_CHANNEL, PER_TENSOR, Feeds, ready
from tests.zoo_graphs.net import Net

EQUAL = 1e-5


def with_outlier(net: Net, *shape: int, column: int, axis: int, size: float = 40.0) -> str:
    """A weight with one column that is larger than the others."""
    values = np.clip(net.rng.normal(0, 0.1, shape), -0.2, 0.2)
    np.moveaxis(values, axis, 0)[column] *= size
    return net.floats(values)


def feeds_of(net: Net, *shape: int) -> Feeds:
    return [{"x": net.normal(*shape)} for _ in range(6)]


def convolutions(net: Net) -> tuple[int, ...]:
    hidden = net.node("MaxPool", net.conv_relu(net.input("x", [1, 3, 8, 8]), 3, 12), kernel_shape=[2, 2])
    net.output(net.node("Conv", hidden, with_outlier(net, 6, 12, 3, 3, column=5, axis=1), net.bias(6)))
    return 1, 3, 8, 8


def classifier(net: Net) -> tuple[int, ...]:
    pooled = net.node("GlobalAveragePool", net.conv_relu(net.input("x", [1, 3, 8, 8]), 3, 12))
    flat = net.node("Flatten", pooled)
    net.output(net.node("Gemm", flat, with_outlier(net, 6, 12, column=3, axis=1), net.bias(6), transB=1))
    return 1, 3, 8, 8


def products(net: Net) -> tuple[int, ...]:
    hidden = net.node("Sigmoid", net.linear(net.input("x", [1, 4, 8]), 8, 16))
    net.output(net.node("MatMul", hidden, with_outlier(net, 16, 5, column=9, axis=0)))
    return 1, 4, 8


@pytest.mark.parametrize("build", [convolutions, classifier, products])
def test_the_float_model_stays_and_the_quantized_one_gains(build: Callable[[Net], tuple[int, ...]]) -> None:
    net = Net(build.__name__)
    shape = build(net)
    case = ready(net.model(), feeds_of(net, *shape), PER_TENSOR)
    found = case.improve("outlier_channel_splitting:ratio=0.25")
    assert len(found.changed) == 1
    assert found.recalibrate
    assert case.change(found.state.graph) < EQUAL
    onnx.checker.check_model(found.state.graph.to_model(), full_check=True)
    assert case.sqnr(case.recalibrated(found.state)) > case.sqnr(case.state) + 3


def test_the_given_state_keeps_its_shapes() -> None:
    net = Net("kept")
    shape = convolutions(net)
    case = ready(net.model(), feeds_of(net, *shape))
    case.improve("outlier_channel_splitting:ratio=0.25")
    assert case.change(case.state.graph) == 0


def test_halves_round_to_what_the_whole_would() -> None:
    net = Net("halves")
    shape = products(net)
    case = ready(net.model(), feeds_of(net, *shape))
    found = case.improve("outlier_channel_splitting:ratio=0.05")
    name = case.state.graph.nodes("MatMul")[1].inputs[1].name
    before, after = case.state.graph.values(name), found.state.graph.values(name)
    assert after.shape == (17, 5)
    np.testing.assert_allclose(after[9] + after[16], before[9], rtol=1e-6)
    np.testing.assert_array_equal(np.delete(after, [9, 16], axis=0), np.delete(before, 9, axis=0))
    assert found.details["channels_added"] == {case.state.graph.nodes("MatMul")[1].name: 1}


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda net, x: net.conv(net.conv_relu(x, 3, 12), 12, 6), "no few columns"),
        (lambda net, x: net.conv(net.conv_relu(x, 3, 12), 12, 12, group=12), "has groups"),
        (lambda net, x: net.conv(net.node("Softmax", net.conv(x, 3, 12), axis=1), 12, 6), "through"),
        (lambda net, x: net.conv(x, 3, 6), "reads no other layer"),
    ],
)
def test_what_cannot_be_split_is_declined_by_name(build: Callable[[Net, str], str], reason: str) -> None:
    net = Net("declined")
    net.output(build(net, net.input("x", [1, 3, 8, 8])))
    case = ready(net.model(), feeds_of(net, 1, 3, 8, 8))
    found = case.improve("outlier_channel_splitting")
    assert not found.changed
    assert any(reason in line for line in found.declined)


def test_weights_with_a_scale_per_channel_are_left() -> None:
    net = Net("per channel")
    shape = convolutions(net)
    found = ready(net.model(), feeds_of(net, *shape), PER_CHANNEL).improve("outlier_channel_splitting")
    assert not found.changed


def test_a_ratio_without_meaning_is_an_error() -> None:
    net = Net("ratio")
    shape = convolutions(net)
    with pytest.raises(ConfigError, match="above 0"):
        ready(net.model(), feeds_of(net, *shape)).improve("outlier_channel_splitting:ratio=0")


def stacked_behind(net: Net) -> str:
    return net.node("MatMul", net.relu(net.linear(net.input("x", [2, 4, 8]), 8, 12)), net.weight(2, 12, 5))


def spread_in_front(net: Net) -> str:
    """The bias has the channels, and the matrix in front of it none."""
    hidden = net.node("Add", net.node("MatMul", net.input("x", [2, 4, 8]), net.weight(8, 1)), net.bias(12))
    return net.node("MatMul", net.relu(hidden), with_outlier(net, 12, 5, column=3, axis=0))


def rows_in_front(net: Net) -> str:
    bias = net.floats(net.rng.normal(size=(8, 1)))
    hidden = net.node("Gemm", net.node("Flatten", net.input("x", [2, 4, 8]), axis=2), net.weight(8, 12), bias)
    return net.node("MatMul", net.relu(hidden), with_outlier(net, 12, 5, column=3, axis=0))


@pytest.mark.parametrize("build", [stacked_behind, spread_in_front, rows_in_front])
def test_weights_without_one_row_or_column_for_each_channel_are_declined(build: Callable[[Net], str]) -> None:
    net = Net(build.__name__)
    net.output(build(net))
    found = ready(net.model(), feeds_of(net, 2, 4, 8), PER_TENSOR).improve("outlier_channel_splitting:ratio=0.25")
    assert not found.changed
    assert found.declined


def test_channels_that_a_pool_mixes_are_not_split() -> None:
    net = Net("pooled")
    hidden = net.relu(net.linear(net.input("x", [1, 2, 6, 8]), 8, 12))
    pooled = net.node("MaxPool", hidden, kernel_shape=[3, 3], pads=[1] * 4)
    net.output(net.node("MatMul", pooled, with_outlier(net, 12, 5, column=3, axis=0)))
    found = ready(net.model(), feeds_of(net, 1, 2, 6, 8), PER_TENSOR).improve("outlier_channel_splitting:ratio=0.25")
    assert not found.changed
    assert any("pools its channels" in line for line in found.declined)


def test_channels_whose_places_a_pool_returns_are_not_split() -> None:
    net = Net("places")
    hidden = net.conv_relu(net.input("x", [1, 3, 8, 8]), 3, 12)
    pooled, places = net.many("MaxPool", [hidden], ["pooled", "places"], kernel_shape=[2, 2])
    net.output(places)
    net.output(net.node("Conv", pooled, with_outlier(net, 6, 12, 3, 3, column=5, axis=1), net.bias(6)))
    found = ready(net.model(), feeds_of(net, 1, 3, 8, 8), PER_TENSOR).improve("outlier_channel_splitting:ratio=0.25")
    assert not found.changed
    assert any("tells more than values" in line for line in found.declined)
