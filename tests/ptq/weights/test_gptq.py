"""GPTQ on models: smaller errors for every target, just the chosen numbers in the file, and reasons for what stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxq.emit import EmitRequest
from onnxq.emit.qdq import write_qdq
from onnxq.emit.simulate import simulate
from onnxq.errors import ConfigError
from onnxq.numerics import dequantize, fake_quantize
from onnxq.ptq.weights.cells import cell_ranges, qparams_of_cells
from onnxq.ptq.weights.gptq_matrix import output_errors
from onnxq.ptq.weights.layers import layers_of, quantized_weights, with_moments
from onnxq.types import PerBlock, QParams
from tests.golden_graphs import depthwise, if_body, transformer
from tests.ptq.calibrated import FOUR_BITS, digits, improved, numbers, ready, weights
from tests.zoo_graphs.net import Net


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime", "vitis", "openvino", "rknn", "espdl"])
def test_every_target_with_steps_gets_better_numbers(backend: str) -> None:
    model = digits(backend)
    found = improved("gptq", backend)
    assert len(found.changed) >= 6
    assert model.sqnr(found.state) > model.sqnr() - 0.5  # at 8 bits activations decide, too
    for tensor, errors in found.details.items():
        assert errors["gptq"] < errors["nearest"], tensor


def test_four_bits_gain_much() -> None:
    model = digits("tensorrt", 4)
    assert model.sqnr(improved("gptq", "tensorrt", 4).state) > model.sqnr() + 2.0


def test_the_error_with_the_real_inputs_is_smaller_than_that_of_plain_rounding() -> None:
    model = digits("tensorrt", 4)
    found = improved("gptq", "tensorrt", 4).state
    layers, _ = layers_of(model.state, quantized_weights(model.state)[0])
    for layer, moments in with_moments(model.state, model.task, layers, "quantized", "test"):
        weight, qparams = model.state.graph.values(layer.tensor), model.state.qparams[layer.tensor]
        plain, chosen = (
            output_errors(layer.view.unfold(weight - values), moments)
            for values in (fake_quantize(weight, qparams), found.graph.values(layer.tensor))
        )
        assert (chosen <= plain * (1 + 1e-9)).all()
        assert chosen.sum() < plain.sum()


def test_the_graph_holds_the_values_of_the_numbers_and_the_old_state_is_untouched() -> None:
    model = digits("tensorrt", 4)
    before = {name: model.state.graph.values(name).copy() for name in weights(model.state)}
    found = model.improve("gptq:inputs=float").state
    moved = 0
    for name in weights(found):
        np.testing.assert_array_equal(model.state.graph.values(name), before[name])
        assert found.qparams[name] == model.state.qparams[name]
        stored = numbers(found, name)
        np.testing.assert_array_equal(dequantize(stored, found.qparams[name]), found.graph.values(name))
        moved += int((stored != numbers(model.state, name)).sum())
    assert moved > 100


def test_the_file_has_the_chosen_numbers(tmp_path: Path) -> None:
    model = digits("onnxruntime")
    found = improved("gptq", "onnxruntime").state
    write_qdq(EmitRequest(found.graph, found.plan, found.qparams, model.task.backend, tmp_path, "model"))
    written = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "model.onnx").graph.initializer}
    for name in weights(found):
        stored = numbers(found, name)
        same = [key for key, values in written.items() if values.shape == stored.shape and (values == stored).all()]
        assert same, name


def test_rounding_down_gives_the_chosen_numbers_too() -> None:
    model = digits("tensorrt", 4)
    state = model.state.copy()
    plan = replace(state.plan, placements=dict(state.plan.placements))
    for name in weights(state):
        spec = plan[name].spec.replace(rounding="floor")
        plan.placements[name] = replace(plan[name], spec=spec)
        held = state.qparams[name]
        state.qparams.put(name, QParams(spec, held.scale, held.zero_point), "test")
    model = replace(model, state=replace(state, plan=plan))
    found = model.improve("gptq")
    assert len(found.changed) == 7
    for name in weights(found.state):
        values, held = found.state.graph.values(name), found.state.qparams[name]
        np.testing.assert_allclose(values, fake_quantize(values, held), rtol=1e-6, atol=0)


@pytest.mark.parametrize("arguments", ["act_order=no", "inputs=float", "damp=0.1"])
def test_arguments_are_obeyed(arguments: str) -> None:
    model = digits("tensorrt", 4)
    usual, other = improved("gptq", "tensorrt", 4).state, model.improve(f"gptq:{arguments}").state
    assert any((numbers(usual, name) != numbers(other, name)).any() for name in weights(usual))
    assert model.sqnr(other) > model.sqnr() + 1.0


@pytest.mark.parametrize(("arguments", "message"), [("damp=0", "damp"), ("inputs=floats", "Did you mean 'float'")])
def test_wrong_arguments_are_refused(arguments: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        digits("tensorrt").improve(f"gptq:{arguments}")


def test_logarithmic_numbers_are_declined() -> None:
    model = digits("nnie")
    found = model.improve("gptq")
    assert found.state is model.state
    assert found.changed == ()
    assert len(found.declined) == 7
    assert all("nnie8 has no steps of equal size" in line for line in found.declined)


def test_depthwise_layers_and_linear_layers() -> None:
    for golden in (depthwise(), transformer()):
        model = ready(golden.model, golden.samples, "tensorrt", FOUR_BITS)
        found = model.improve("gptq")
        assert len(found.changed) >= 7
        assert found.declined == ()
        errors = [(each["gptq"], each["nearest"]) for each in found.details.values()]
        assert all(after < before for after, before in errors)


def test_layers_inside_a_body_are_declined() -> None:
    golden = if_body()
    model = ready(golden.model, golden.samples, "tensorrt", FOUR_BITS)
    found = model.improve("gptq")
    assert found.changed
    assert any("inside the body" in line for line in found.declined)


def shared_weight() -> onnx.ModelProto:
    net = Net("shared")
    weight = net.weight(8, 8, 3, 3)
    x = net.input("x", [1, 8, 6, 6])
    first = net.node("Relu", net.node("Conv", x, weight, pads=[1] * 4))
    net.output(net.node("Conv", first, weight, pads=[1] * 4))
    return net.model()


def test_a_weight_of_two_layers_is_fitted_to_the_inputs_of_both() -> None:
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.uniform(0, 1, (1, 8, 6, 6)).astype(np.float32)} for _ in range(16)]
    model = ready(shared_weight(), feeds, "tensorrt", FOUR_BITS)
    (layer,), _ = layers_of(model.state, quantized_weights(model.state)[0])
    assert len(layer.readers) == 2
    found = model.improve("gptq")
    assert len(found.changed) == 1
    assert model.sqnr(found.state) > model.sqnr()


def linear(transposed: bool) -> onnx.ModelProto:
    net = Net("linear")
    weight = net.weight(16, 48) if transposed else net.weight(48, 16, fan_in=48)
    net.output(net.node("Gemm", net.input("x", [4, 48]), weight, net.bias(16), transB=int(transposed)))
    return net.model()


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("recompute", ["yes", "no"])
def test_weights_in_blocks(transposed: bool, recompute: str) -> None:
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(48, 48)) * np.exp(-np.arange(48) / 8)
    feeds = [{"x": np.maximum(rng.normal(size=(4, 48)) @ mix.T, 0).astype(np.float32)} for _ in range(40)]
    model = ready(linear(transposed), feeds, "tensorrt", FOUR_BITS)
    state = model.state.copy()
    (name,) = weights(state)
    blocks = PerBlock(1 if transposed else 0, 10)  # the last block is shorter
    spec = state.plan[name].spec.replace(granularity=blocks)
    plan = replace(state.plan, placements={**state.plan.placements, name: replace(state.plan[name], spec=spec)})
    values = state.graph.values(name)
    state.qparams.put(name, qparams_of_cells(*cell_ranges(values, blocks), spec), "test")
    model = replace(model, state=replace(state, plan=plan))
    found = model.improve(f"gptq:recompute={recompute}").state
    chosen = found.graph.values(name)
    np.testing.assert_array_equal(fake_quantize(chosen, found.qparams[name]), chosen)
    assert (found.qparams[name] == state.qparams[name]) == (recompute == "no")
    assert model.sqnr(found) > model.sqnr() + 1.0


def test_the_simulated_model_has_the_values_of_the_graph() -> None:
    model = digits("tensorrt", 4)
    found = improved("gptq", "tensorrt", 4).state
    simulated, _ = simulate(found.graph, found.plan.active, found.qparams, model.task.backend)
    for node in found.graph.nodes("Conv"):
        read = simulated.values(simulated.node(node.name).inputs[1])
        np.testing.assert_array_equal(read, found.graph.values(node.inputs[1]))


def test_a_weight_that_somebody_reads_in_float_or_that_is_returned_stays() -> None:
    model = digits("tensorrt", 4)
    name = weights(model.state)[0]
    returned = replace(model.state, graph=model.state.graph.copy())
    returned.graph.gs.outputs.append(returned.graph.tensor(name))
    found, declined = quantized_weights(returned)
    assert len(found) == 6
    assert declined == [f"{name}: the model returns it"]
    elsewhere = replace(model.state, graph=model.state.graph.copy())
    elsewhere.graph.add_node("Abs", [name], name="looks")
    found, declined = quantized_weights(elsewhere)
    assert len(found) == 6
    assert declined == [f"{name}: 'looks' reads it in float"]
