"""Bias correction: the means of layers come back, outputs get nearer, and nothing is corrected that has no bias."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import onnx
import pytest

from onnxq.emit.simulate import simulate
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.numerics import dequantize
from onnxq.ptq.bias_correction.bias_correction import _evenly
from onnxq.ptq.bias_correction.sites import bias_sites
from onnxq.ptq.method import State
from onnxq.runtime.tap import Tap
from tests.golden_graphs import if_body, residual, transformer
from tests.ptq.calibrated import FOUR_BITS, Ready, digits, improved, numbers, ready
from tests.zoo_graphs.net import Net

SEQUENTIAL = "bias_correction:rounds=99"


def shifts(model: Ready, state: State) -> dict[str, float]:
    """Layer -> the largest difference of a channel's mean from the float model, relative to the layer's deviation."""
    sites, _ = bias_sites(state.copy())
    simulated, _ = simulate(state.graph, state.plan.active, state.qparams, model.task.backend)

    def outputs(graph: Graph) -> dict[str, np.ndarray]:
        names = {site.node: graph.node(site.last).outputs[0].name for site in sites}
        tap = Tap(graph, names.values())
        runs = [tap.run(feed) for feed in model.task.samples]
        return {node: np.concatenate([run[name] for run in runs]) for node, name in names.items()}

    exact, found = outputs(model.task.reference), outputs(simulated)
    result = {}
    for site in sites:
        others = tuple(i for i in range(exact[site.node].ndim) if i != site.axis % exact[site.node].ndim)
        apart = exact[site.node].mean(others, dtype=float) - found[site.node].mean(others, dtype=float)
        result[site.node] = float(np.abs(apart).max() / exact[site.node].std())
    return result


@pytest.mark.parametrize("backend", ["tensorrt", "academic:w_bits=4"])
def test_layer_after_layer_every_mean_is_that_of_the_float_model(backend: str) -> None:
    bits = 4 if backend == "tensorrt" else 8
    model = digits(backend, bits)
    before, after = shifts(model, model.state), shifts(model, improved(SEQUENTIAL, backend, bits).state)
    assert len(after) == 7
    assert max(before.values()) > 0.1
    assert max(after.values()) < 1e-5  # biases are float: what is left is the rounding of float32


def test_a_few_rounds_leave_little_and_nothing_at_the_end() -> None:
    model = digits("tensorrt", 4)
    before, after = shifts(model, model.state), shifts(model, improved("bias_correction", "tensorrt", 4).state)
    assert after["classifier"] < 1e-5
    assert all(after[node] < 0.3 * before[node] for node in before)


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime", "vitis", "openvino", "nnie", "qnn", "espdl"])
def test_every_target_gains(backend: str) -> None:
    model = digits(backend)
    found = improved("bias_correction", backend)
    assert len(found.changed) == 7
    assert found.declined == ()
    assert model.sqnr(found.state) > model.sqnr() + 0.5


@pytest.mark.parametrize("backend", ["tensorrt", "academic:w_bits=4"])
def test_weights_of_four_bits_gain_much(backend: str) -> None:
    bits = 4 if backend == "tensorrt" else 8
    model = digits(backend, bits)
    usual, in_sequence = (improved(text, backend, bits).state for text in ("bias_correction", SEQUENTIAL))
    assert model.sqnr(usual) > model.sqnr() + 2.0
    assert model.sqnr(usual) > model.sqnr(in_sequence) - 1.0


def test_nothing_but_biases_changes() -> None:
    model = digits("tensorrt", 4)
    before = {tensor.name: model.state.graph.values(tensor).copy() for tensor in model.state.graph.constants()}
    found = model.improve("bias_correction:1").state
    biases = {site.bias for site in bias_sites(found)[0]}
    assert len(biases) == 7
    for name, values in before.items():
        np.testing.assert_array_equal(model.state.graph.values(name), values)
        assert np.array_equal(found.graph.values(name), values) == (name not in biases)
    assert found.qparams.entries == model.state.qparams.entries


def test_the_bias_of_a_batch_norm_that_stays_apart_is_corrected() -> None:
    sites, declined = bias_sites(digits("academic:w_bits=4").state.copy())
    assert declined == []
    assert [site.bias for site in sites][:2] == ["stem.bn.bias", "residual1.bn.bias"]


def test_quantized_biases_are_the_corrected_ones() -> None:
    found = improved("bias_correction", "vitis").state
    for placement in found.plan:
        if placement.role == "bias":
            stored = dequantize(numbers(found, placement.tensor), found.qparams[placement.tensor])
            step = found.qparams[placement.tensor].scale
            assert np.abs(stored - found.graph.values(placement.tensor)).max() <= 0.51 * step  # nothing saturates


def test_layers_at_one_depth_are_corrected_together_and_in_order() -> None:
    sites, _ = bias_sites(digits("tensorrt").state.copy())
    levels = [site.level for site in sites]
    assert levels == sorted(levels) == list(range(7))
    golden = residual()
    branches, _ = bias_sites(ready(golden.model, golden.samples, "tensorrt").state.copy())
    assert len({site.level for site in branches}) < len(branches)  # a shortcut runs beside a block


def test_rounds_are_evenly_apart_and_end_at_the_last_depth() -> None:
    assert _evenly(7, 1) == [6]
    assert _evenly(8, 4) == [1, 3, 5, 7]
    assert _evenly(20, 3)[-1] == 19


def test_linear_layers_with_an_add_behind_them() -> None:
    golden = transformer()
    model = ready(golden.model, golden.samples, "onnxruntime", FOUR_BITS)
    found = model.improve(SEQUENTIAL)
    after = shifts(model, found.state)
    assert len(after) == 7
    # int32 biases and what is read in between are quantized; a mean is left to a part of a step.
    assert max(after.values()) < 0.02 < max(shifts(model, model.state).values())


def without_bias() -> onnx.ModelProto:
    net = Net("without")
    x = net.input("x", [1, 4, 6, 6])
    net.output(net.conv(net.relu(net.conv(x, 4, 4, bias=False)), 4, 4))
    return net.model()


def test_layers_without_a_bias_are_declined() -> None:
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.uniform(size=(1, 4, 6, 6)).astype(np.float32)} for _ in range(8)]
    found = ready(without_bias(), feeds, "tensorrt", FOUR_BITS).improve("bias_correction")
    assert len(found.changed) == 1
    assert len(found.declined) == 1
    assert found.declined[0].endswith(": it has no bias")


def test_a_bias_that_counts_for_nothing_is_declined() -> None:
    net = Net("beta")
    x = net.input("x", [3, 8])
    bias = net.constant(net.normal(4), "bias")
    net.output(net.node("Gemm", x, net.constant(net.normal(8, 4), "weight"), bias, beta=0.0), [3, 4])
    feeds = [{"x": np.full((3, 8), number, np.float32)} for number in range(8)]
    # Most targets take such a bias away.
    found = ready(net.model(), feeds, "weight_only", {"passes": []}).improve("bias_correction")
    assert not found.changed
    assert found.declined[0].endswith(": its beta is 0, so that its bias counts for nothing")


def test_layers_inside_a_body_are_declined() -> None:
    golden = if_body()
    found = ready(golden.model, golden.samples, "tensorrt", FOUR_BITS).improve("bias_correction")
    assert found.changed
    assert any("inside the body" in line for line in found.declined)


def test_channels_that_were_scaled_since_are_compared_with_what_they_should_be_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equalization keeps the outputs of the float model and changes what is in between."""
    model = digits("tensorrt", 4)
    state = model.state.copy()
    graph = state.graph
    scales = np.array([4.0, 0.25] * 64, np.float32)
    first, second = graph.node("pointwise.conv"), graph.node("head.conv")
    channels = graph.values(first.inputs[1]).shape[0]
    scale = scales[:channels]
    graph.set_values(first.inputs[1], graph.values(first.inputs[1]) * scale[:, None, None, None])
    graph.set_values(first.inputs[2], graph.values(first.inputs[2]) * scale)
    graph.set_values(second.inputs[1], graph.values(second.inputs[1]) / scale[None, :, None, None])
    equalized = replace(model, state=state)
    found = equalized.improve("bias_correction").state
    exact = replace(equalized, task=replace(model.task, reference=graph)).improve("bias_correction").state
    for tensor in graph.constants():
        np.testing.assert_array_equal(found.graph.values(tensor.name), exact.graph.values(tensor.name))
    bias = first.inputs[2].name
    monkeypatch.setattr(import_module("onnxq.ptq.bias_correction.bias_correction"), "SAME_DB", np.inf)
    misled = equalized.improve("bias_correction").state
    assert np.abs(misled.graph.values(bias) - exact.graph.values(bias)).max() > 0.1


def test_statistics_of_batch_norms_take_the_place_of_samples() -> None:
    model = digits("academic:w_bits=4")
    found = improved("bias_correction:analytic=yes", "academic:w_bits=4")
    assert len(found.changed) == 4
    assert model.sqnr(found.state) > model.sqnr() + 0.5
    assert all("BatchNormalization" in line for line in found.declined)
    real = improved(SEQUENTIAL, "academic:w_bits=4").state
    for site in bias_sites(found.state)[0]:
        if any(line.startswith(f"{site.node}:") for line in found.changed):
            old = model.state.graph.values(site.bias)
            expected = (state.graph.values(site.bias) - old for state in (found.state, real))
            assert np.corrcoef(*expected)[0, 1] > 0.5, site.node


def test_folded_batch_norms_are_said_to_be_missing() -> None:
    found = digits("tensorrt", 4).improve("bias_correction:analytic=yes")
    assert found.changed == ()
    assert len(found.declined) == 7


def test_rounds_below_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="rounds"):
        digits("tensorrt").improve("bias_correction:0")


def test_channels_of_a_batch_norm_that_no_matrix_multiplies_are_not_taken_for_its_inputs() -> None:
    net = Net("stacked")
    normed = net.relu(net.batch_norm(net.input("x", [4, 3, 6]), 3))
    net.output(net.node("Add", net.node("MatMul", normed, net.weight(4, 6, 5)), net.bias(5)))
    net.output(net.linear(normed, 6, 5))
    model = ready(net.model(), [{"x": net.normal(4, 3, 6)} for _ in range(4)], "academic:w_bits=4")
    found = model.improve("bias_correction:analytic=yes")
    assert found.changed == ()
    assert all("does not multiply the channels" in line for line in found.declined)
    assert len(found.declined) == 2
