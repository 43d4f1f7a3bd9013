"""Settings at the edges of what they are about: axes, names with signs of globs in them, formats of biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import onnxq
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import PerTensor, QuantPlan

WEIGHTS = {"w1": (8, 4, 1, 1), "b1": (8,), "w2": (8, 8, 1, 1), "b2": (8,)}


def network() -> onnx.ModelProto:
    """Two convolutions; the names of the first one and of its result hold a sign of globs."""
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[1,4,6,6] x) => (float[1,8,6,6] o) {
        [first] a = Conv (x, w1, b1)
        [second] c = Conv (a, w2, b2)
        [last] o = Relu (c)
    }"""
    model = onnx.parser.parse_model(text)
    first, second, _ = model.graph.node
    first.name = "part[0]"
    first.output[0] = second.input[0] = "made[0]"
    random = np.random.default_rng(0)
    for name, shape in WEIGHTS.items():
        model.graph.initializer.append(numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name))
    return model


def plan_of(config: dict[str, Any], backend: str = "onnxruntime") -> QuantPlan:
    return make_plan(prepare(Graph.from_model(network()), backend, config))


def samples() -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(1)
    return [{"x": random.normal(size=(1, 4, 6, 6)).astype(np.float32)} for _ in range(3)]


def test_a_name_with_a_sign_of_globs_in_it_is_an_exact_name_and_wins_over_a_later_glob() -> None:
    node = {"part[0]": {"weight": {"observer": "mse"}}, "part*": {"weight": {"observer": "percentile:99.0"}}}
    assert plan_of({"node": node})["w1"].observer == "mse"
    tensor = {"made[0]": {"observer": "mse"}, "mad*": {"observer": "percentile:99.0"}}
    assert plan_of({"tensor": tensor})["made[0]"].observer == "mse"


@pytest.mark.parametrize("weight", ["w1", "w2"])
def test_a_bias_whose_weight_has_scales_along_its_inputs_stays_float_with_a_note(weight: str) -> None:
    bias = weight.replace("w", "b")
    usual = plan_of({"tensor": {weight: {"channel_axis": 0}}})
    assert bias in usual
    across = plan_of({"tensor": {weight: {"channel_axis": 1}}})
    assert bias not in across
    assert any(f"bias '{bias}' stays float" in note for note in across.notes)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino", "rknn"])
def test_weights_with_scales_along_their_inputs_are_calibrated_and_written(backend: str, tmp_path: Path) -> None:
    config = {"weight": {"channel_axis": 1}, "minimum_sqnr_db": -100.0}
    result = onnxq.quantize(network(), backend=backend, data=samples(), config=config, out=tmp_path)
    assert result.qparams["w1"].scale.shape == (4,)
    assert result.qparams["w2"].scale.shape == (8,)


@pytest.mark.parametrize(
    "config",
    [
        {"tensor": {"made[0]": {"channel_axis": 1}}},
        {"activation": {"channel_axis": 1}},
        {"weight": {"channel_axis": 1, "per_channel": False}},
        {"node": {"part*": {"output": {"channel_axis": 2}}}},
    ],
)
def test_an_axis_for_a_quantizer_with_one_scale_is_a_note_and_decides_nothing(config: dict[str, Any]) -> None:
    plan = plan_of(config)
    assert any(note.startswith("no effect: channel_axis") for note in plan.notes)
    assert all("channel_axis" not in dict(placement.set_by) for placement in plan)


def test_an_axis_for_a_quantizer_with_channels_has_no_note() -> None:
    plan = plan_of({"weight": {"channel_axis": 1}})
    assert not any("channel_axis" in note for note in plan.notes)
    assert dict(plan["w1"].set_by)["channel_axis"] == "weight.channel_axis"


def test_what_is_wrong_with_a_bias_is_to_be_changed_under_bias() -> None:
    with pytest.raises(UnsupportedError, match=r"'b1'.*bf16 is stored as bfloat16.*dtype under \[bias\]"):
        plan_of({"bias": {"dtype": "bf16"}})


def test_a_bias_that_qlinearconv_cannot_have_is_refused_before_calibration() -> None:
    with pytest.raises(UnsupportedError, match=r"'b1'.*int8 is no type for the bias of a QLinearConv"):
        plan_of({"bias": {"dtype": "int8"}}, "onnx_qnn")


def test_an_override_of_a_bias_that_stays_float_is_a_note() -> None:
    model = network()
    model.graph.node[1].input[2] = "b1"  # one bias for both
    config = {"tensor": {"b1": {"dtype": "int8"}}, "skip_passes": ["split_shared_weights"]}
    plan = make_plan(prepare(Graph.from_model(model), "onnxruntime", config))
    assert "b1" not in plan
    assert any("bias 'b1' stays float" in note and "tensor.b1.dtype" in note for note in plan.notes)


def test_channels_of_a_weight_without_output_channels_are_a_note() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17]> g (float[2,8] x) => (float[2,8] o) {
            [norm] s = LayerNormalization (x, row)
            [layer] o = MatMul (s, w)
        }"""
    )
    for name, shape in {"row": (8,), "w": (8, 8)}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    plan = make_plan(prepare(Graph.from_model(model), "qnn", {"tensor": {"row": {"per_channel": True}}}))
    assert plan["row"].spec.granularity == PerTensor()
    assert any("per_channel of 'row'" in note for note in plan.notes)
    assert "per_channel" not in dict(plan["row"].set_by)


def test_a_bias_has_no_quantizer_where_its_input_shares_one_that_only_observes() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17]> g (float[1,4,6,6] x) => (float[1,8,3,3] o) {
            [first] a = Conv (x, w1, b1)
            [relu] r = Relu (a)
            [pool] p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
            [second] o = Conv (p, w2, b2)
        }"""
    )
    for name, shape in WEIGHTS.items():
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    plan = make_plan(prepare(Graph.from_model(model), "espdl", {"tensor": {"r": {"observe_only": True}}}))
    assert plan["p"].observe_only, "it shares the quantizer of the tensor that the setting names"
    assert "b1" in plan
    assert "b2" not in plan


@pytest.mark.parametrize("backend", ["onnxruntime", "qnn", "tensorrt"])
def test_a_forced_relu_is_a_node_of_its_own_in_the_plan_and_in_the_file(backend: str, tmp_path: Path) -> None:
    config = {"force": ["last"], "minimum_sqnr_db": -100.0}
    result = onnxq.quantize(network(), backend=backend, data=samples(), config=config, out=tmp_path)
    assert result.plan["c"].why in ("output of Conv 'second'", "input of Relu 'last'")
    assert "last" in result.plan.quantized
    prepared = prepare(network(), backend, config)
    simulated, _ = onnxq.simulate(prepared.graph, result.plan, result.qparams, prepared.backend.replace(simulations=()))
    simulated.save(tmp_path / "simulated.onnx")
    written, meant = (
        session_of(path).run(None, samples()[0])[0] for path in (result.model, tmp_path / "simulated.onnx")
    )
    np.testing.assert_allclose(written, meant, rtol=0, atol=1e-6)


def session_of(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
