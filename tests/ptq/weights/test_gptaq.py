"""Refit on models: better than rounding each layer by itself, means that are right, and reasons for what stays."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.emit.simulate import simulate
from onnxq.errors import ConfigError
from onnxq.graph.depths import in_stages
from onnxq.numerics import dequantize
from onnxq.runtime.tap import Tap
from tests.golden_graphs import depthwise, if_body, transformer
from tests.ptq.calibrated import FOUR_BITS, digits, improved, numbers, ready, weights
from tests.ptq.weights.test_gptq import shared_weight
from tests.zoo import ZOO
from tests.zoo_graphs.net import Net


def test_four_bits_gain_more_than_by_gptq_and_bias_correction() -> None:
    model = digits("tensorrt", 4)
    rounded = improved("gptq", "tensorrt", 4).state
    gptq = ready_again(model, rounded).improve("bias_correction").state
    found = model.sqnr(improved("gptaq", "tensorrt", 4).state)
    assert found > model.sqnr() + 4
    assert found > model.sqnr(gptq) + 0.5


def ready_again(model, state):
    return type(model)(state, model.task, model.evaluator)


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime", "vitis", "openvino", "espdl"])
def test_every_target_with_steps_is_fitted(backend: str) -> None:
    model, found = digits(backend), improved("gptaq", backend)
    assert len(found.changed) >= 6
    assert model.sqnr(found.state) > model.sqnr() - 0.5  # at 8 bits activations decide, too
    for tensor, errors in found.details.items():
        assert 0 <= errors["gptaq"] <= errors["nearest"], tensor


def test_the_graph_holds_the_values_of_the_numbers_and_the_old_state_is_untouched() -> None:
    model = digits("tensorrt", 4)
    before = {c.name: model.state.graph.values(c.name).copy() for c in model.state.graph.constants()}
    found = model.improve("gptaq").state
    for name, values in before.items():
        np.testing.assert_array_equal(model.state.graph.values(name), values)
    for name in weights(found):
        assert found.qparams[name] == model.state.qparams[name]
        np.testing.assert_array_equal(dequantize(numbers(found, name), found.qparams[name]), found.graph.values(name))


def test_the_mean_of_each_channel_is_that_of_the_float_model() -> None:
    """With all rows looked at, layer after layer, nothing is left of a shift."""
    net = Net("three layers")
    hidden = net.relu(net.gemm(net.input("x", [4, 24]), 24, 24))
    hidden = net.relu(net.gemm(hidden, 24, 24))
    net.output(net.gemm(hidden, 24, 8))
    feeds = [{"x": net.normal(4, 24)} for _ in range(32)]
    model = ready(net.model(), feeds, "academic", FOUR_BITS, evaluated=feeds)
    found = model.improve("gptaq").state
    name = found.graph.output_names[0]
    simulated, _ = simulate(found.graph, found.plan.active, found.qparams, model.task.backend)
    plain, _ = simulate(model.state.graph, model.state.plan.active, model.state.qparams, model.task.backend)
    means = [
        np.mean([Tap(graph, [name]).run(feed)[name].mean(0) for feed in feeds], 0)
        for graph in (model.task.reference, simulated, plain)
    ]
    assert np.abs(means[1] - means[0]).max() < 1e-4
    assert np.abs(means[2] - means[0]).max() > 1e-2


def test_fewer_runs_than_layers_are_deep_still_help() -> None:
    model = digits("tensorrt", 4)
    all_of_them, few = (model.sqnr(model.improve(f"gptaq:rounds={rounds}").state) for rounds in (64, 2))
    assert few > model.sqnr() + 2
    assert all_of_them > few - 0.5


def test_layers_with_a_factor_in_front_of_their_product() -> None:
    net = Net("alpha")
    x = net.input("x", [4, 16])
    hidden = net.relu(net.node("Gemm", x, net.weight(16, 16), net.bias(16), alpha=0.25, beta=2.0))
    net.output(net.node("Gemm", hidden, net.weight(16, 8), net.bias(8), alpha=4.0, beta=0.5))
    feeds = [{"x": net.normal(4, 16)} for _ in range(40)]
    model = ready(net.model(), feeds, "tensorrt", {**FOUR_BITS, "skip_passes": ["canonicalize_gemm"]})
    assert model.state.graph.nodes("Gemm")[0].attrs["alpha"] == 0.25
    assert model.sqnr(model.improve("gptaq").state) > model.sqnr() + 0.5


def test_depthwise_layers_and_linear_layers() -> None:
    for golden in (depthwise(), transformer()):
        model = ready(golden.model, golden.samples, "tensorrt", FOUR_BITS)
        found = model.improve("gptaq")
        assert len(found.changed) >= 7
        assert found.declined == ()
        assert model.sqnr(found.state) > model.sqnr()


def test_a_model_that_onnxruntime_spoils_by_optimizing_a_part_of_it() -> None:
    """Its layer normalization of float16, cut off behind the scale, is fused into a node with two types."""
    case = ZOO["transformer_fp16"]()
    made = ready(case.model, case.feeds, "academic", FOUR_BITS)
    assert len(made.improve("gptaq").changed) > 5


def test_a_weight_of_two_layers_is_fitted_to_the_inputs_of_both() -> None:
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.uniform(0, 1, (1, 8, 6, 6)).astype(np.float32)} for _ in range(16)]
    model = ready(shared_weight(), feeds, "tensorrt", FOUR_BITS)
    found = model.improve("gptaq")
    assert len(found.changed) == 1
    assert model.sqnr(found.state) > model.sqnr()


def test_layers_inside_a_body_and_logarithmic_numbers_are_declined() -> None:
    golden = if_body()
    found = ready(golden.model, golden.samples, "tensorrt", FOUR_BITS).improve("gptaq")
    assert found.changed
    assert any("inside the body" in line for line in found.declined)
    found = digits("nnie").improve("gptaq")
    assert found.changed == ()
    assert all("nnie8 has no steps of equal size" in line for line in found.declined)


def test_a_channel_that_is_always_zero() -> None:
    net = Net("dead channel")
    weight = net.rng.normal(size=(8, 4, 3, 3)).astype(np.float32)
    weight[2] = 0.0
    x = net.input("x", [1, 4, 8, 8])
    hidden = net.relu(net.node("Conv", x, net.floats(weight), net.floats(np.zeros(8)), pads=[1] * 4))
    deep = net.node("Conv", hidden, net.weight(8, 1, 3, 3), net.bias(8), group=8, pads=[1] * 4)
    net.output(net.conv(deep, 8, 4))
    feeds = [{"x": net.normal(1, 4, 8, 8)} for _ in range(8)]
    model = ready(net.model(), feeds, "tensorrt", FOUR_BITS)
    found = model.improve("gptaq")
    assert len(found.changed) == 3
    assert np.isfinite(model.sqnr(found.state))


@pytest.mark.parametrize(
    ("arguments", "message"), [("alpha=2", "alpha"), ("damp=0", "damp"), ("rounds=0", "at least 1")]
)
def test_wrong_arguments_are_refused(arguments: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        digits("tensorrt").improve(f"gptaq:{arguments}")


def test_depths_are_divided_evenly() -> None:
    assert in_stages([3, 1, 1, 0, 2], 64) == [[0], [1], [2], [3]]
    assert in_stages(range(7), 3) == [[0, 1], [2, 3], [4, 5, 6]]
    assert in_stages([], 3) == []
