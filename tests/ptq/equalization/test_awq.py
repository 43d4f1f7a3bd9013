"""AWQ: columns that meet large activations are rounded finer, and the float model computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ConfigError
from onnxq.ptq.method import Samples, Task
from onnxq.session.session import open_session
from tests.ptq.equalization.prepared import Feeds, Ready
from tests.zoo_graphs.net import Net

EQUAL = 1e-5
WIDTH, TOKENS = 32, 8


def salient(outlier: float, number: int = 0) -> tuple[Net, Feeds]:
    """Norm, query, key and value, a feed-forward pair; channels 3 and 7 of what is read are much larger than others."""
    net = Net(f"salient {outlier:g} {number}")
    x = net.input("x", [1, TOKENS, WIDTH])
    gamma = net.rng.uniform(0.7, 1.3, WIDTH)
    gamma[[3, 7]] *= outlier

    def normed(x: str) -> str:
        return net.node("LayerNormalization", x, net.floats(gamma), net.bias(WIDTH))

    inside = normed(x)
    query, key, value = (net.linear(inside, WIDTH, WIDTH) for _ in range(3))
    scores = net.node("Softmax", net.node("MatMul", query, net.node("Transpose", key, perm=[0, 2, 1])))
    attended = net.node("Add", x, net.linear(net.node("MatMul", scores, value), WIDTH, WIDTH))
    hidden = net.relu(net.linear(normed(attended), WIDTH, 2 * WIDTH))
    net.output(net.node("Add", attended, net.linear(hidden, 2 * WIDTH, WIDTH)))
    return net, [{"x": net.normal(1, TOKENS, WIDTH)} for _ in range(12)]


def ready(net: Net, feeds: Feeds, backend: str, **config: object) -> Ready:
    found = open_session(net.model(), backend=backend, data=feeds, config=config or None).calibrated()
    graph = found.state.graph
    task = Task(graph.copy(), found.session.prepared.backend, Samples(found.session.dataset, tuple(range(len(feeds)))))
    return Ready(found.state, task, feeds)


@pytest.mark.parametrize("backend", ["weight_only", "academic:w_bits=4", "academic:w_bits=4,a_bits=16"])
def test_salient_channels_are_kept(backend: str) -> None:
    gains = []
    for number in range(8):  # random attention: one net may win or lose 2 dB by the luck of its rounding
        case = ready(*salient(5.0, number), backend)
        found = case.improve("awq")
        assert found.recalibrate
        assert case.change(found.state.graph) < EQUAL
        before, after = case.sqnr(case.recalibrated(case.state)), case.sqnr(case.recalibrated(found.state))
        gains.append(after - before)
        assert all(after < before for before, after in found.details["error"].values())
    assert np.mean(gains) > 1.0, gains


def test_layers_that_read_one_tensor_share_their_alpha_and_old_constants_stay() -> None:
    case = ready(*salient(5.0), "weight_only")
    before = {tensor.name: case.state.graph.values(tensor).copy() for tensor in case.state.graph.constants()}
    found = case.improve("awq")
    norm = case.state.graph.nodes("LayerNormalization")[0]
    readers = [use.node.name for use in case.state.graph.consumers(norm.outputs[0])]
    assert len(readers) == 3
    assert len({found.details["alpha"][name] for name in readers}) == 1
    for name, values in before.items():
        np.testing.assert_array_equal(case.state.graph.values(name), values)
    moved = found.state.graph.values(norm.inputs[1].name) / before[norm.inputs[1].name]
    assert moved[[3, 7]].max() < np.delete(moved, [3, 7]).min()  # large channels are divided most


def test_blocks_along_the_inputs_let_outputs_be_scaled() -> None:
    found = ready(*salient(5.0), "weight_only").improve("awq")
    assert len(found.details["alpha"]) == 6
    assert found.declined == ()


def test_even_activations_are_left_alone_or_gain() -> None:
    case = ready(*salient(1.0), "academic:w_bits=8")
    found = case.improve("awq")
    assert case.change(found.state.graph) < EQUAL
    after = case.recalibrated(found.state) if found.changed else case.state
    assert case.sqnr(after) > case.sqnr(case.state) - 0.5


def test_steps_below_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="steps"):
        ready(*salient(1.0), "weight_only").improve("awq:0")


@pytest.mark.parametrize("groups", [4, 8])
def test_each_group_of_a_convolution_meets_its_own_channels(groups: int) -> None:
    net = Net(f"groups {groups}")
    hidden = net.conv(net.input("x", [1, 3, 8, 8]), 3, 8)
    scaled = net.node("Mul", hidden, net.floats(np.where(np.arange(8) % 4 == 1, 30.0, 1.0).reshape(8, 1, 1)))
    net.output(net.conv(scaled, 8, 16, group=groups))
    case = ready(net, [{"x": net.normal(1, 3, 8, 8)} for _ in range(6)], "academic:w_bits=4")
    found = case.improve("awq")
    (layer,) = found.details["alpha"]
    assert case.state.graph.node(layer).attrs["group"] == groups
    assert case.change(found.state.graph) < EQUAL
