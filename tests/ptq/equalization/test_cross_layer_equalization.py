"""Cross-layer equalization: the float model stays, and weights with one scale get back what uneven channels cost."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from onnxq.errors import ConfigError
from tests.golden_graphs import GOLDEN
from tests.ptq.equalization.prepared import PER_CHANNEL, PER_TENSOR, Feeds, ready
from tests.zoo_graphs.net import Net

EQUAL = 1e-5


def feeds_of(net: Net, count: int = 8) -> Feeds:
    return [{"x": net.image(1, 3, 12, 12)} for _ in range(count)]


def scale_rows(model: onnx.ModelProto, layer: int, factors: np.ndarray) -> None:
    """Multiply the output channels of the layer with this number, in weight and bias."""
    _multiply(model, layer, factors, lambda weight: factors.reshape(-1, *(1,) * (weight.ndim - 1)), bias=True)


def scale_columns(model: onnx.ModelProto, layer: int, factors: np.ndarray) -> None:
    """Divide the input channels of a layer; those of a depthwise one are its rows."""

    def spread(weight: np.ndarray) -> np.ndarray:
        axis = 0 if weight.shape[1] == 1 else 1
        return 1 / factors.reshape([-1 if position == axis else 1 for position in range(weight.ndim)])

    _multiply(model, layer, factors, spread, bias=False)


def _multiply(model: onnx.ModelProto, layer: int, factors: np.ndarray, spread: object, *, bias: bool) -> None:
    node = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")][layer]
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    weight = numpy_helper.to_array(held[node.input[1]])
    changed = {node.input[1]: weight * spread(weight)}  # type: ignore[operator]
    if bias:
        changed[node.input[2]] = numpy_helper.to_array(held[node.input[2]]) * factors
    for name, values in changed.items():
        held[name].CopyFrom(numpy_helper.from_array(values.astype(np.float32), name))


def depthwise_net(activation: str) -> Net:
    """MobileNet in small: a stem, then twice depthwise and 1 x 1."""
    net = Net(f"mobile {activation}")

    def act(x: str) -> str:
        return net.relu(x) if activation == "Relu" else net.node("Clip", x, net.floats(0.0), net.floats(6.0))

    x = act(net.conv(net.input("x", [1, 3, 12, 12]), 3, 12))
    for channels in (12, 16):
        x = act(net.conv(act(net.conv(x, channels, channels, group=channels)), channels, 16, 1))
    net.output(net.classifier(x, 16))
    return net


def uneven(net: Net, spread: float) -> onnx.ModelProto:
    """The net with channels between 1 and 10^-spread of their size, computing the same."""
    model = net.model()
    for layer, channels in enumerate((12, 12, 16, 16)):
        factors = 10 ** -net.rng.uniform(0, spread, channels)
        factors[0] = 1.0
        scale_rows(model, layer, factors)
        scale_columns(model, layer + 1, factors)
    return model


@pytest.mark.parametrize("backend", [PER_TENSOR, PER_CHANNEL])
@pytest.mark.parametrize("name", GOLDEN)
def test_float_outputs_stay_equal(name: str, backend: str) -> None:
    golden = GOLDEN[name]()
    model = ready(golden.model, golden.samples[:6], backend)
    before = {tensor.name: model.state.graph.values(tensor) for tensor in model.state.graph.constants()}
    found = model.improve("cross_layer_equalization")
    assert found.changed
    assert found.recalibrate
    assert model.change(found.state.graph) < EQUAL
    for constant, values in before.items():  # the state that was given is as it was
        np.testing.assert_array_equal(model.state.graph.values(constant), values)


@pytest.mark.parametrize("activation", ["Relu", "Relu6"])
def test_a_depthwise_net_with_one_scale_per_weight_is_recovered(activation: str) -> None:
    net = depthwise_net(activation)
    feeds = feeds_of(net)
    even = ready(net.model(), feeds)
    model = ready(uneven(net, 2.5), feeds)
    if activation == "Relu":  # small channels do not reach 6, so that the uneven net is another one
        assert model.change(even.state.graph) < EQUAL
    found = model.improve("cross_layer_equalization")
    assert model.change(found.state.graph) < EQUAL
    before, after = model.sqnr(model.state), model.sqnr(model.recalibrated(found.state))
    best = even.sqnr(even.state)
    assert before < 10
    assert after > best - 3
    assert after > before + 15


@settings(max_examples=12, deadline=None)
@given(
    exponents=st.lists(st.floats(-2.0, 2.0), min_size=8, max_size=8),
    activation=st.sampled_from(["Relu", "LeakyRelu", "MaxPool", "Identity"]),
)
def test_any_uneven_channels_are_evened_out(exponents: list[float], activation: str) -> None:
    net = Net("pair")
    attributes = {"kernel_shape": [2, 2]} if activation == "MaxPool" else {}
    hidden = net.node(activation, net.conv(net.input("x", [1, 3, 12, 12]), 3, 8), **attributes)
    net.output(net.conv(hidden, 8, 4))
    feeds = feeds_of(net, 4)
    even = ready(net.model(), feeds)
    changed = net.model()
    factors = 10 ** np.array(exponents)
    scale_rows(changed, 0, factors)
    scale_columns(changed, 1, factors)
    model = ready(changed, feeds)
    found = model.improve("cross_layer_equalization")
    assert model.change(found.state.graph) < EQUAL
    state = model.recalibrated(found.state) if found.changed else model.state
    assert model.sqnr(state) > even.sqnr(even.state) - 3


def test_chains_are_balanced_as_a_whole() -> None:
    net = depthwise_net("Relu")
    model = ready(uneven(net, 3.0), feeds_of(net))
    found = model.improve("cross_layer_equalization:activations=no")
    weights = [node.inputs[1].name for node in found.state.graph.nodes("Conv")]
    for name in weights[:4]:
        rows = np.abs(found.state.graph.values(name)).reshape(-1, found.state.graph.values(name)[0].size).max(axis=1)
        assert rows.max() / rows.min() < 30  # 1000 before
    assert 1 < found.details["sweeps"] < 60


def test_channels_that_reach_the_bound_of_relu6_keep_their_scale() -> None:
    net = Net("bounded")
    x = net.conv(net.input("x", [1, 3, 12, 12]), 3, 6)
    net.output(net.conv(net.node("Clip", x, net.floats(0.0), net.floats(6.0)), 6, 4))
    model = net.model()
    scale_rows(model, 0, np.array([20.0, 0.01, 20.0, 0.05, 1.0, 0.3]))
    case = ready(model, feeds_of(net))
    found = case.improve("cross_layer_equalization")
    assert case.change(found.state.graph) < EQUAL
    assert any("2 of 6 channels" in line and "bound" in line for line in found.declined)
    name = case.state.graph.nodes("Conv")[0].inputs[1].name
    before, after = case.state.graph.values(name), found.state.graph.values(name)
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    assert np.abs(after[1]).max() > 10 * np.abs(before[1]).max()

    exact = case.improve("cross_layer_equalization:relu6=exact")
    assert not exact.changed
    assert any("has bounds" in line for line in exact.declined)


def test_dead_channels_keep_their_scale() -> None:
    net = Net("dead")
    net.output(net.conv(net.conv_relu(net.input("x", [1, 3, 12, 12]), 3, 6), 6, 4))
    model = net.model()
    scale_rows(model, 0, np.array([1.0, 0.0, 0.01, 1.0, 1.0, 1.0]))
    case = ready(model, feeds_of(net))
    found = case.improve("cross_layer_equalization")
    assert case.change(found.state.graph) < EQUAL
    weight = found.state.graph.values(found.state.graph.nodes("Conv")[1].inputs[1])
    np.testing.assert_array_equal(
        weight[:, 1], case.state.graph.values(case.state.graph.nodes("Conv")[1].inputs[1])[:, 1]
    )


def test_weights_with_a_scale_per_channel_are_balanced_by_their_activations() -> None:
    net = depthwise_net("Relu")
    case = ready(uneven(net, 2.5), feeds_of(net), PER_CHANNEL)
    found = case.improve("cross_layer_equalization")
    assert case.change(found.state.graph) < EQUAL
    assert case.sqnr(case.recalibrated(found.state)) > case.sqnr(case.state) + 10


def test_an_unknown_treatment_of_relu6_is_an_error() -> None:
    net = depthwise_net("Relu")
    with pytest.raises(ConfigError, match="data or exact"):
        ready(net.model(), feeds_of(net, 2)).improve("cross_layer_equalization:relu6=yes")


def pair_of_layers() -> Net:
    net = Net("pair")
    net.output(net.conv(net.conv_relu(net.input("x", [1, 3, 12, 12]), 3, 6), 6, 4))
    return net


def test_fewer_steps_leave_a_chain_less_even() -> None:
    net = depthwise_net("Relu")
    case = ready(uneven(net, 2.5), feeds_of(net))
    one, all_of_them = (case.improve(f"cross_layer_equalization:{text}") for text in ("steps=1", "relu6=data"))
    assert one.details["sweeps"] == 1
    assert all_of_them.details["sweeps"] > 1
    assert case.change(one.state.graph) < EQUAL
    weights = [found.state.graph.values(found.state.graph.nodes("Conv")[2].inputs[1]) for found in (one, all_of_them)]
    assert not np.allclose(*weights, rtol=0.05)


def test_channels_with_small_weights_on_both_sides_keep_their_scale() -> None:
    net = pair_of_layers()
    model = net.model()
    scale_rows(model, 0, np.array([1.0, 1e-4, 0.01, 1.0, 1.0, 1.0]))
    scale_columns(model, 1, np.array([1.0, 1e3, 0.01, 1.0, 1.0, 1.0]))
    case = ready(model, feeds_of(net))
    graph = case.state.graph
    before = graph.values(graph.nodes("Conv")[1].inputs[1])
    for text, moved in (("threshold=0", True), ("threshold=0.1", False)):
        found = case.improve(f"cross_layer_equalization:{text}")
        after = found.state.graph.values(found.state.graph.nodes("Conv")[1].inputs[1])
        assert (not np.array_equal(before[:, 1], after[:, 1])) is moved
        assert not np.array_equal(before[:, 2], after[:, 2])  # its weights behind are large
    everything = case.improve("cross_layer_equalization:threshold=1e6")
    assert everything.changed == ()
    assert any("below 1e+06 together" in line for line in everything.declined)


def test_the_mean_of_a_channel_can_be_balanced_in_the_place_of_its_largest_weight() -> None:
    net = pair_of_layers()
    model = net.model()
    weight = next(tensor for tensor in model.graph.initializer if list(tensor.dims) == [4, 6, 3, 3])
    values = numpy_helper.to_array(weight).copy()
    values[:, 2] *= 0.01
    values[0, 2, 0, 0] = np.abs(
        values
    ).max()  # one large weight among small ones: large by its maximum, small by its mean
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    case = ready(model, feeds_of(net))
    largest, mean = (
        case.improve(f"cross_layer_equalization:activations=no,balance={name}").state.graph for name in ("max", "mean")
    )
    assert case.change(mean) < EQUAL
    sizes = [np.abs(graph.values(weight.name)[:, 2]).mean() for graph in (largest, mean)]
    assert sizes[1] > 2 * sizes[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [("balance=median", "max or mean"), ("threshold=-1", "at least 0"), ("steps=0", "at least 1")],
)
def test_wrong_parameters_of_equalization_are_named(text: str, message: str) -> None:
    net = depthwise_net("Relu")
    with pytest.raises(ConfigError, match=message):
        ready(net.model(), feeds_of(net, 2)).improve(f"cross_layer_equalization:{text}")
