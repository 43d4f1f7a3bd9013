"""High-bias absorption: what a channel always has goes into the next bias, exactly on the samples."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.ptq.equalization.shifts import find_sites
from tests.golden_graphs import GOLDEN
from tests.ptq.equalization.prepared import PER_CHANNEL, PER_TENSOR, Feeds, ready
from tests.zoo_graphs.net import Net

EQUAL = 1e-5


def high(net: Net, x: str, channels: int, offset: float = 30.0) -> str:
    """A convolution whose outputs lie around `offset` in half of the channels."""
    bias = np.where(np.arange(channels) % 2, offset, 0.0)
    return net.node("Conv", x, net.weight(channels, 3, 3, 3), net.floats(bias), pads=[1] * 4)


def feeds_of(net: Net) -> Feeds:
    return [{"x": net.image(1, 3, 8, 8)} for _ in range(6)]


def conv_behind(net: Net, x: str) -> str:
    return net.conv(x, 6, 4, 3, pads=[0] * 4)


def gemm_behind(net: Net, x: str) -> str:
    pooled = net.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    weight = net.weight(96, 5)
    return net.node("Gemm", net.node("Flatten", pooled), weight, net.bias(5), alpha=0.5, beta=2.0)


def linear_behind(net: Net, x: str) -> str:
    pooled = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return net.linear(net.node("Transpose", pooled, perm=[0, 2, 3, 1]), 6, 5)


def depthwise_behind(net: Net, x: str) -> str:
    return net.conv(x, 6, 12, 3, group=6, pads=[0] * 4)


@pytest.mark.parametrize("backend", [PER_TENSOR, PER_CHANNEL])
@pytest.mark.parametrize("behind", [conv_behind, gemm_behind, linear_behind, depthwise_behind])
def test_float_outputs_stay_equal_and_the_quantized_model_gains(behind: object, backend: str) -> None:
    net = Net("high")
    net.output(behind(net, net.relu(high(net, net.input("x", [1, 3, 8, 8]), 6))))  # type: ignore[operator]
    case = ready(net.model(), feeds_of(net), backend)
    found = case.improve("high_bias_absorption")
    assert len(found.changed) == 1
    assert "3 of 6 channels" in found.changed[0]
    assert found.recalibrate
    # float32: outputs are differences of numbers around 30, before and after.
    assert case.change(found.state.graph) < EQUAL
    assert case.sqnr(case.recalibrated(found.state)) > case.sqnr(case.state) + 1


def test_two_readers_both_take_the_shift_up() -> None:
    net = Net("two readers")
    hidden = net.relu(high(net, net.input("x", [1, 3, 8, 8]), 6))
    net.output(conv_behind(net, hidden))
    net.output(net.classifier(hidden, 6))
    case = ready(net.model(), feeds_of(net))
    found = case.improve("high_bias_absorption")
    assert found.changed
    assert case.change(found.state.graph) < EQUAL


def test_sigma_absorbs_more_than_the_smallest_value() -> None:
    net = Net("sigma")
    net.output(conv_behind(net, net.relu(high(net, net.input("x", [1, 3, 8, 8]), 6, offset=20.0))))
    case = ready(net.model(), feeds_of(net))
    exact, wide = case.improve("high_bias_absorption"), case.improve("high_bias_absorption:sigma=1")
    assert next(iter(wide.details["range_left"].values())) < next(iter(exact.details["range_left"].values()))


def test_channels_at_the_bound_of_relu6_are_left() -> None:
    net = Net("bounded")
    x = high(net, net.input("x", [1, 3, 8, 8]), 6, offset=4.8)
    weight = onnx.numpy_helper.to_array(net.initializers[0]) * 0.1
    weight[5] *= 10
    net.initializers[0] = onnx.numpy_helper.from_array(weight, net.initializers[0].name)
    net.output(conv_behind(net, net.node("Clip", x, net.floats(0.0), net.floats(6.0))))
    case = ready(net.model(), feeds_of(net))
    found = case.improve("high_bias_absorption")
    assert not found.changed  # channel 5 has the largest values and reaches 6
    assert case.change(found.state.graph) == 0


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda net, x: net.conv(net.relu(x), 6, 4), "pads with zeros"),
        (lambda net, x: net.conv(net.relu(x), 6, 4, 1, bias=False), "has no bias"),
        (lambda net, x: conv_behind(net, net.node("Sigmoid", net.relu(x))), "cannot carry a shift"),
        (lambda net, x: conv_behind(net, net.node("Mul", net.relu(x), x)), "read by others"),
    ],
)
def test_what_is_not_exact_is_declined_by_name(build: object, reason: str) -> None:
    net = Net("declined")
    net.output(build(net, high(net, net.input("x", [1, 3, 8, 8]), 6)))  # type: ignore[operator]
    case = ready(net.model(), feeds_of(net))
    found = case.improve("high_bias_absorption")
    assert not found.changed
    assert found.state is case.state
    assert len([line for line in found.declined if reason in line]) == 1


@pytest.mark.parametrize("name", GOLDEN)
def test_networks_without_high_biases_stay_as_they_are(name: str) -> None:
    golden = GOLDEN[name]()
    case = ready(golden.model, golden.samples[:4])
    assert not case.improve("high_bias_absorption").changed


def test_a_negative_sigma_is_an_error() -> None:
    net = Net("negative")
    net.output(net.conv(net.input("x", [1, 3, 8, 8]), 3, 2))
    with pytest.raises(ConfigError, match="at least 0"):
        ready(net.model(), feeds_of(net)).improve("high_bias_absorption:sigma=-1")


@pytest.mark.parametrize("by_rows", ["layer", "reader"])
def test_biases_with_a_value_for_each_row_are_left_alone(by_rows: str) -> None:
    """They have as many values as a bias of the channels: the matrices are square."""
    net = Net("rows")
    shapes = {"layer": (6, 1) if by_rows == "layer" else (6,), "reader": (6, 1) if by_rows == "reader" else (6,)}

    def layer(x: str, shape: tuple[int, ...]) -> str:
        return net.node("Add", net.node("MatMul", x, net.weight(6, 6)), net.floats(net.rng.uniform(20, 30, shape)))

    net.output(layer(net.relu(layer(net.input("x", [6, 6]), shapes["layer"])), shapes["reader"]))
    case = ready(net.model(), [{"x": net.normal(6, 6)} for _ in range(6)], PER_TENSOR)
    found = case.improve("high_bias_absorption")
    assert not found.changed
    assert any("do not fit" in line for line in found.declined)


@pytest.mark.parametrize(("shape", "beta"), [((6, 1), 1.0), ((6,), 2.0)])
def test_a_gemm_whose_bias_is_no_plain_vector_is_declined(shape: tuple[int, ...], beta: float) -> None:
    """As it is in a file, before the passes have given it the usual form."""
    net = Net("gemm")
    bias = net.floats(net.rng.uniform(20, 30, shape))
    hidden = net.relu(net.node("Gemm", net.input("x", [6, 6]), net.weight(6, 6), bias, beta=beta))
    net.output(net.gemm(hidden, 6, 4))
    case = ready(net.model(), [{"x": net.normal(6, 6)} for _ in range(6)], PER_TENSOR)
    graph = Graph.from_model(net.model())
    graph.infer_shapes()
    sites, declined = find_sites(graph, case.state.plan)
    assert not sites
    assert any("bias" in line for line in declined)
