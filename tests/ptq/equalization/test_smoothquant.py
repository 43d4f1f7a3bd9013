"""SmoothQuant: outliers of activations move into the weights, through whatever makes the activation."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ConfigError
from tests.golden_graphs import GOLDEN
from tests.ptq.equalization.prepared import PER_CHANNEL, PER_TENSOR, Feeds, ready
from tests.zoo_graphs.net import Net

EQUAL = 1e-5
WIDTH, TOKENS = 16, 6


def pre_norm(outlier: float, norm: str) -> tuple[Net, Feeds]:
    """A block of a transformer: norm, query, key and value, attention, norm, two layers; channel 3 is an outlier."""
    net = Net(f"pre norm {norm}")
    x = net.input("x", [1, TOKENS, WIDTH])

    def normed(x: str) -> str:
        gamma = net.rng.uniform(0.7, 1.3, WIDTH)
        gamma[3] *= outlier
        if norm == "LayerNormalization":
            return net.node(norm, x, net.floats(gamma), net.bias(WIDTH))
        square = net.node("ReduceMean", net.node("Mul", x, x), axes=[-1])
        return net.node("Mul", net.node("Div", x, net.node("Sqrt", square)), net.floats(gamma))

    def layer(x: str, size_in: int, size_out: int) -> str:
        weight = net.rng.normal(0, 1 / np.sqrt(size_in), (size_in, size_out))
        weight[3] /= outlier if size_in == WIDTH else 1.0
        return net.node("Add", net.node("MatMul", x, net.floats(weight)), net.bias(size_out))

    inside = normed(x)
    query, key, value = (layer(inside, WIDTH, WIDTH) for _ in range(3))
    scores = net.node("Softmax", net.node("MatMul", query, net.node("Transpose", key, perm=[0, 2, 1])))
    attended = net.node("Add", x, net.linear(net.node("MatMul", scores, value), WIDTH, WIDTH))
    hidden = net.relu(layer(normed(attended), WIDTH, 2 * WIDTH))
    net.output(net.node("Add", attended, net.linear(hidden, 2 * WIDTH, WIDTH)))
    return net, [{"x": net.normal(1, TOKENS, WIDTH)} for _ in range(8)]


@pytest.mark.parametrize("backend", [PER_TENSOR, PER_CHANNEL])
@pytest.mark.parametrize("norm", ["LayerNormalization", "RMSNorm"])
def test_an_outlier_behind_a_norm_is_smoothed(norm: str, backend: str) -> None:
    net, feeds = pre_norm(60.0, norm)
    case = ready(net.model(), feeds, backend)
    found = case.improve("smoothquant")
    assert case.change(found.state.graph) < EQUAL
    assert found.recalibrate
    before, after = case.sqnr(case.state), case.sqnr(case.recalibrated(found.state))
    assert after > before + 6
    assert all(after < before for before, after in found.details["error"].values())


def test_layers_that_read_one_norm_share_their_alpha() -> None:
    net, feeds = pre_norm(60.0, "LayerNormalization")
    case = ready(net.model(), feeds)
    found = case.improve("smoothquant")
    first_norm = case.state.graph.nodes("LayerNormalization")[0].outputs[0]
    readers = [use.node.name for use in case.state.graph.consumers(first_norm)]
    assert len(readers) == 3
    assert len({found.details["alpha"][name] for name in readers}) == 1


@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0])
def test_a_given_alpha_is_taken_everywhere(alpha: float) -> None:
    net, feeds = pre_norm(20.0, "LayerNormalization")
    case = ready(net.model(), feeds, PER_CHANNEL)
    found = case.improve(f"smoothquant:{alpha}")
    assert set(found.details["alpha"].values()) == {alpha}
    assert case.change(found.state.graph) < EQUAL


def test_alpha_one_makes_all_channels_of_the_activation_equal() -> None:
    net, feeds = pre_norm(20.0, "LayerNormalization")
    case = ready(net.model(), feeds, PER_CHANNEL)
    graph = case.improve("smoothquant:1").state.graph
    gamma = np.abs(graph.values(graph.nodes("LayerNormalization")[0].inputs[1]))
    assert gamma.max() / gamma.min() < 4  # 20 or more before; what is left is how far the normal distribution reaches


@pytest.mark.parametrize("name", GOLDEN)
def test_float_outputs_stay_equal(name: str) -> None:
    golden = GOLDEN[name]()
    case = ready(golden.model, golden.samples[:6], PER_CHANNEL)
    found = case.improve("smoothquant:0.5")
    assert found.changed
    assert case.change(found.state.graph) < EQUAL


def test_a_norm_that_a_residual_reads_is_declined_by_name() -> None:
    net = Net("post norm")
    x = net.input("x", [1, TOKENS, WIDTH])

    def norm(x: str) -> str:
        return net.node("LayerNormalization", x, net.floats(np.ones(WIDTH)), net.bias(WIDTH))

    inside = norm(x)
    wide = net.node("Sigmoid", net.linear(inside, WIDTH, 24))
    net.output(norm(net.node("Add", inside, net.linear(wide, 24, WIDTH))))
    case = ready(net.model(), [{"x": net.normal(1, TOKENS, WIDTH)} for _ in range(4)])
    found = case.improve("smoothquant")
    assert not found.changed
    assert found.state is case.state
    reads = [line for line in found.declined if "reads" in line]
    assert len(reads) == 2
    assert any("normalises it" in line for line in reads)
    assert any("Sigmoid" in line for line in reads)


def test_nothing_is_changed_where_no_alpha_helps() -> None:
    net = Net("even")
    weight, gamma = np.ones((WIDTH, 4)), np.ones(WIDTH)
    normed = net.node("LayerNormalization", net.input("x", [1, 2, WIDTH]), net.floats(gamma))
    net.output(net.node("MatMul", normed, net.floats(weight)))
    alternating = np.where(np.arange(WIDTH) % 2, 1.0, -1.0).astype(np.float32)
    case = ready(net.model(), [{"x": np.stack([[alternating, -alternating]]) * size} for size in (1, 2, 3)])
    found = case.improve("smoothquant")
    assert not found.changed
    assert any("no alpha" in line for line in found.declined)


@pytest.mark.parametrize("alpha", ["-0.1", "1.5"])
def test_an_alpha_outside_of_its_range_is_an_error(alpha: str) -> None:
    net, feeds = pre_norm(1.0, "LayerNormalization")
    with pytest.raises(ConfigError, match="between 0"):
        ready(net.model(), feeds).improve(f"smoothquant:alpha={alpha}")


def test_a_bias_with_a_row_for_each_sample_may_be_quantized() -> None:
    """Several values of such a constant belong to one channel."""
    net = Net("bias with rows")
    x = net.input("x", [4, WIDTH])
    bias = net.floats(net.rng.normal(0.5, 1.0, (4, WIDTH)) * np.linspace(0.2, 8, WIDTH))
    hidden = net.node("Relu", net.node("Gemm", x, net.weight(WIDTH, WIDTH), bias, beta=0.7))
    net.output(net.gemm(hidden, WIDTH, 8))
    case = ready(net.model(), [{"x": net.normal(4, WIDTH)} for _ in range(8)], "espdl")
    found = case.improve("smoothquant:0.5")
    assert case.change(found.state.graph) < EQUAL
    assert case.sqnr(case.recalibrated(found.state)) > 20
