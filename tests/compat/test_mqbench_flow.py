"""prepare_by_platform ... convert_deploy on an ONNX file, with MQBench's meaning of each step."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.compat.mqbench import (
    BackendType,
    PreparedModel,
    convert_deploy,
    disable_all,
    enable_calibration,
    enable_calibration_quantization,
    enable_calibration_woquantization,
    enable_quantization,
    prepare_by_platform,
)
from onnxq.compat.mqbench.spool import Spool
from onnxq.errors import ConfigError, DataError, ModelError, OnnxqError, UnsupportedError
from tests.compat.mqbench_plans import ACTIVATION_SCHEME, RESNET, SCHEME, SCHEMES, TRANSFORMER
from tests.networks.exported import exported, samples

IMAGES = samples(RESNET, 4)["image"]


def prepared(backend: object = BackendType.Tensorrt, **extra: Any) -> PreparedModel:
    return prepare_by_platform(exported(RESNET), backend, extra)


def calibrated() -> PreparedModel:
    model = prepared()
    enable_calibration(model)
    for image in IMAGES:
        model(image[None])
    return model


def test_the_flow_gives_the_same_files_as_the_pipeline(tmp_path: Path) -> None:
    result = convert_deploy(calibrated(), BackendType.Tensorrt, output_path=tmp_path / "flow")
    assert result.model == tmp_path / "flow" / "mqbench_qmodel.onnx"
    np.savez(tmp_path / "data.npz", image=IMAGES)
    plain = onnxq.quantize(
        exported(RESNET), backend="tensorrt", data=tmp_path / "data.npz", config={"effort": 0}, out=tmp_path / "plain"
    )
    assert result.qparams.entries.keys() == plain.qparams.entries.keys()
    for name in plain.qparams.entries:
        np.testing.assert_array_equal(result.qparams[name].scale, plain.qparams[name].scale)


def test_calls_give_float_results_until_quantization_is_enabled() -> None:
    reference = ort.InferenceSession(exported(RESNET)).run(None, {"image": IMAGES[:1]})[0]
    model = prepared()
    np.testing.assert_allclose(model(IMAGES[:1]), reference, rtol=1e-4, atol=1e-5)
    assert model.samples == 0
    enable_calibration(model)
    np.testing.assert_allclose(model(IMAGES[:1]), reference, rtol=1e-4, atol=1e-5)
    assert model.samples == 1
    enable_quantization(model)
    quantized = model(IMAGES[:1])
    assert model.samples == 1
    assert np.abs(quantized - reference).max() > 1e-4  # rounding to 8 bits is visible
    disable_all(model)
    np.testing.assert_allclose(model(IMAGES[:1]), reference, rtol=1e-4, atol=1e-5)
    assert model.samples == 1


def test_quantized_calls_are_those_of_the_deployed_file(tmp_path: Path) -> None:
    model = calibrated()
    enable_quantization(model)
    given = model(IMAGES[:1])
    file = convert_deploy(model, "Tensorrt", output_path=tmp_path).model
    options = ort.SessionOptions()  # the optimizer's integer kernels may saturate, depending on the processor
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    np.testing.assert_array_equal(given, ort.InferenceSession(file, options).run(None, {"image": IMAGES[:1]})[0])


def test_more_samples_change_what_is_quantized() -> None:
    model = calibrated()
    enable_quantization(model)
    before = model(IMAGES[:1])
    enable_calibration(model)
    model(IMAGES[:1] * 3)
    enable_quantization(model)
    assert np.abs(model(IMAGES[:1]) - before).max() > 0
    model.forget_samples()
    assert model.samples == 0


def test_only_calls_for_activations_are_remembered() -> None:
    model = prepared()
    enable_calibration_woquantization(model, quantizer_type="act_fake_quant")
    model(IMAGES[:1])
    enable_calibration_woquantization(model, quantizer_type="weight_fake_quant")
    model(IMAGES[:1])
    assert model.samples == 1
    enable_calibration_woquantization(model)
    model(IMAGES[:1])
    assert model.samples == 2
    with pytest.raises(ConfigError, match="Did you mean 'act_fake_quant'"):
        enable_calibration_woquantization(model, quantizer_type="actfake_quant")


def test_calibration_and_quantization_at_once_remembers_and_quantizes() -> None:
    reference = prepared()(IMAGES[:1])
    model = prepared()
    enable_calibration_quantization(model)
    assert np.abs(model(IMAGES[:1]) - reference).max() > 1e-4
    assert model.samples == 1
    with pytest.raises(ConfigError, match="onnxq quantizes both"):
        enable_calibration_quantization(model, quantizer_type="weight_fake_quant")


def test_inputs_come_by_place_by_name_or_in_a_dictionary() -> None:
    model = prepare_by_platform(exported(TRANSFORMER), "Academic_NLP", {"extra_qconfig_dict": SCHEMES})
    feed = {name: array[:2] for name, array in samples(TRANSFORMER).items()}
    wanted = model(feed)
    np.testing.assert_array_equal(model(feed["tokens"], feed["mask"]), wanted)
    np.testing.assert_array_equal(model(tokens=feed["tokens"], mask=feed["mask"]), wanted)
    np.testing.assert_array_equal(model(feed["tokens"], mask=feed["mask"]), wanted)
    with pytest.raises(DataError, match="given twice"):
        model(feed["tokens"], tokens=feed["tokens"])
    with pytest.raises(DataError, match="no data for input 'mask'"):
        model(feed["tokens"])
    with pytest.raises(DataError, match="Did you mean 'mask'"):
        model(feed["tokens"], maks=feed["mask"])
    with pytest.raises(DataError, match=r"2 input\(s\)"):
        model(1, 2, 3)


def test_torch_tensors_are_taken() -> None:
    torch = pytest.importorskip("torch")
    model = prepared()
    tensor = torch.tensor(IMAGES[:1], requires_grad=True)
    np.testing.assert_array_equal(model(tensor), model(IMAGES[:1]))


def test_further_outputs_come_in_every_mode() -> None:
    model = prepared(preserve_attr={"": ["layer1"]})
    enable_calibration(model)
    logits, features = model(IMAGES[:1])
    enable_quantization(model)
    again, features_again = model(IMAGES[:1])
    assert (logits.shape, features.shape) == (again.shape, features_again.shape)


def test_a_fixed_input_need_not_be_fed() -> None:
    feed = {name: array[:1] for name, array in samples(TRANSFORMER).items()}
    extra = {"extra_qconfig_dict": SCHEMES, "concrete_args": {"mask": feed["mask"]}}
    model = prepare_by_platform(exported(TRANSFORMER), "Academic_NLP", extra)
    plain = prepare_by_platform(exported(TRANSFORMER), "Academic_NLP", {"extra_qconfig_dict": SCHEMES})
    np.testing.assert_allclose(model(feed["tokens"]), plain(feed), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model(feed), model(feed["tokens"]))


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        ({"input_shape_dict": {"image": [1, 3, 32, 32]}}, [1, 3, 32, 32]),
        ({"dummy_input": np.zeros((2, 3, 32, 32), np.float32)}, [2, 3, 32, 32]),
        ({"dummy_input": (np.zeros((4, 3, 32, 32)),), "input_names": ["image"]}, [4, 3, 32, 32]),
        ({"dummy_input": {"image": np.zeros((2, 3, 32, 32))}, "dynamic_axes": {"image": {0: "n"}}}, ["n", 3, 32, 32]),
        ({}, ["batch", 3, 32, 32]),
    ],
)
def test_shapes_are_fixed(arguments: dict[str, Any], shape: list[int | str], tmp_path: Path) -> None:
    model = prepared()
    enable_calibration(model)
    model(IMAGES)
    result = convert_deploy(model, "Tensorrt", output_path=tmp_path, model_name="net", **arguments)
    assert result.model.name == "net.onnx"
    (image,) = onnx.load(result.model).graph.input
    assert [size.dim_param or size.dim_value for size in image.type.tensor_type.shape.dim] == shape


def test_deploying_without_samples_says_what_to_do() -> None:
    with pytest.raises(DataError, match=r"call enable_calibration\(prepared\)"):
        convert_deploy(prepared(), "Tensorrt")
    model = prepared()
    enable_quantization(model)
    with pytest.raises(DataError, match=r"call enable_calibration\(prepared\)"):
        model(IMAGES[:1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend_type": BackendType.SNPE}, "was prepared for tensorrt"),
        ({"backend_type": "Tensort"}, "Did you mean 'Tensorrt'"),
        ({"input_shape_dict": {"imgae": [1, 3, 32, 32]}}, "Did you mean 'image'"),
        ({"input_names": ["imgae"]}, "an ONNX file keeps its names"),
        ({"output_names": ["logit"]}, "Did you mean 'logits'"),
        ({"dummy_inputs": 1}, "unknown argument 'dummy_inputs'"),
        ({"dummy_input": (IMAGES, IMAGES)}, "dummy_input has 2 arrays"),
        ({"dummy_input": IMAGES, "input_shape_dict": {}}, "give one of them"),
        ({"backend_type": BackendType.QDQ}, "was prepared for tensorrt, so it cannot be deployed for"),
        ({"input_shape_dict": {"image": 3}}, "is a list of sizes"),
        ({"input_shape_dict": {"image": ["1", 3, 32, 32]}}, "is a list of sizes"),
        ({"input_shape_dict": [[1, 3, 32, 32]]}, "holds names of inputs and shapes"),
        ({"input_names": "image"}, "input_names is a list of names"),
        ({"dynamic_axes": {"imgae": {0: "n"}}}, "Did you mean 'image'"),
        ({"dynamic_axes": ["image"]}, "dynamic_axes holds names and axes"),
        ({"dynamic_axes": {"image": 0}}, "holds axes from 0 on"),
        ({"dynamic_axes": {"image": {4: "n"}}, "dummy_input": IMAGES}, "but it has 4 dimensions"),
        ({"model_name": "a/b"}, "model_name is a name without folders"),
        ({"model_name": ""}, "model_name is a name without folders"),
    ],
)
def test_wrong_arguments_of_convert_deploy_are_errors(arguments: dict[str, Any], message: str) -> None:
    model = calibrated()
    with pytest.raises(ConfigError, match=message):
        convert_deploy(model, **{"backend_type": "Tensorrt", **arguments})


def test_a_torch_module_is_refused_with_the_way_to_export_it() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ModelError, match=r"torch\.onnx\.export"):
        prepare_by_platform(torch.nn.ReLU(), BackendType.Tensorrt)
    with pytest.raises(ConfigError, match="prepare_by_platform is expected, not a ReLU"):
        enable_calibration(torch.nn.ReLU())


def test_what_is_about_torch_alone_gets_a_row(tmp_path: Path) -> None:
    model = prepare_by_platform(exported(RESNET), "Tensorrt", custom_tracer=object(), is_qat=False, freeze_bn=False)
    keys = {row.key: row.became for row in model.rows}
    assert keys["custom_tracer"].startswith("no effect")
    assert keys["is_qat"] == keys["freeze_bn"] == "torch() trains folded weights"
    live = prepare_by_platform(exported(RESNET), "Tensorrt", freeze_bn=False)
    assert live.batch_norms == "live"
    enable_calibration(model.eval())
    model(IMAGES[:1])
    result = convert_deploy(model, "Tensorrt", output_path=tmp_path, deploy_to_qlinear=True)
    rows = {row["key"]: row["became"] for row in result.report["translated"]["keys"]}
    assert rows["convert_deploy.deploy_to_qlinear"].startswith("no effect")


def test_samples_are_kept_whatever_their_inputs_are_called() -> None:
    spool = Spool()
    feed = {"file": np.ones((1, 2), np.float32), "a/b:0": np.array([1, 2]), "text": np.array(["one", "two"], object)}
    spool.add(feed)
    (path,) = spool.folder.iterdir()
    with np.load(path) as kept:
        assert {name: kept[name].tolist() for name in kept} == {name: array.tolist() for name, array in feed.items()}
    spool.close()
    assert spool.count == 0


def test_nothing_is_left_on_disk_when_the_model_is_gone() -> None:
    model = calibrated()
    enable_quantization(model)
    model(IMAGES[:1])
    assert model._folder is not None
    folders = [model._spool.folder, model._folder.path]
    assert all(folder.is_dir() for folder in folders)
    del model
    gc.collect()
    assert not any(folder.exists() for folder in folders)


def test_neither_torch_nor_onnxruntime_is_loaded_with_the_module() -> None:
    code = "import sys, onnxq.compat.mqbench; print([name for name in ('torch', 'onnxruntime') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_model_prepared_for_the_plain_file_is_not_deployed_with_tables() -> None:
    model = prepared(BackendType.QDQ)
    with pytest.raises(ConfigError, match="was prepared for tensorrt:tables=no"):
        convert_deploy(model, BackendType.Tensorrt)


def test_options_that_a_configuration_set_need_not_be_repeated(tmp_path: Path) -> None:
    model = prepared("OPENVINO", extra_quantizer_dict={"academic_mode": True})
    enable_calibration(model)
    model(IMAGES)
    assert convert_deploy(model, BackendType.OPENVINO, output_path=tmp_path).plan.backend == "openvino:academic=yes"


def test_axes_without_a_shape_get_a_row(tmp_path: Path) -> None:
    axes = {"image": [0], "logits": [0]}
    result = convert_deploy(calibrated(), "Tensorrt", output_path=tmp_path, dynamic_axes=axes)
    rows = {row["key"]: row["became"] for row in result.report["translated"]["keys"]}
    for name in axes:
        assert rows[f"convert_deploy.dynamic_axes.{name}"].startswith("no effect")


def test_a_call_that_fails_is_not_remembered(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    constants = {"shape": np.array([2, 4]), "w": np.eye(4, dtype=np.float32)}
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "net", [x], [y], stored)
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = prepare_by_platform(network, "Tensorrt_NLP")
    enable_calibration(model)
    model(np.ones((2, 4), np.float32))
    with pytest.raises(OnnxqError, match="onnxruntime could not run"):
        model(np.ones((3, 4), np.float32))
    assert model.samples == 1
    assert convert_deploy(model, "Tensorrt_NLP", output_path=tmp_path).model.exists()


def test_moving_a_model_between_devices_gives_the_model_itself() -> None:
    model = prepared()
    assert model.cuda() is model.to("cpu") is model.cpu() is model.eval() is model


def test_a_model_of_few_bits_can_be_called_and_deployed_however_bad_it_is(tmp_path: Path) -> None:
    schemes = {key: {**scheme, "bit": 2} for key, scheme in SCHEMES.items()}
    model = prepared("Academic", extra_qconfig_dict=schemes)
    enable_calibration(model)
    model(IMAGES)
    enable_quantization(model)
    results = model(IMAGES[:1])
    assert results.shape == (1, 10)
    with pytest.raises(OnnxqError, match="minimum_sqnr_db"):
        convert_deploy(model, "Academic", output_path=tmp_path / "strict")
    result = convert_deploy(model, "Academic", output_path=tmp_path / "any", minimum_sqnr_db=-100.0)
    assert result.model.exists()


@pytest.mark.parametrize(
    ("backend", "scheme", "rule"),
    [
        ("Tensorrt", {"a_qscheme": {**ACTIVATION_SCHEME, "symmetry": False}}, "zero-point-zero"),
        ("Vitis", {"a_qscheme": {**ACTIVATION_SCHEME, "bit": 16, "pot_scale": True}}, "dtype"),
        ("STPU", {"w_qscheme": SCHEME}, "weight-per-tensor"),
    ],
)
def test_what_the_target_cannot_take_is_an_error_before_any_sample(
    backend: str, scheme: dict[str, Any], rule: str
) -> None:
    with pytest.raises(UnsupportedError, match=rf"\[{rule}\].*extra_qconfig_dict"):
        prepare_by_platform(exported(RESNET), backend, {"extra_qconfig_dict": scheme})


def test_averages_do_not_depend_on_how_samples_come_in_batches(tmp_path: Path) -> None:
    given = {"a_observer": "EMAMinMaxObserver", "a_observer_extra_args": {"ema_ratio": 0.5}}
    found = []
    for size in (1, 4):
        model = prepared(extra_qconfig_dict=given)
        enable_calibration(model)
        for first in range(0, 4, size):
            model(IMAGES[first : first + size])
        found.append(convert_deploy(model, BackendType.Tensorrt, output_path=tmp_path / str(size)).qparams)
    assert found[0] == found[1]
    highest = float(np.abs(IMAGES).max()) / 127
    assert float(found[0]["image"].scale) < highest  # an average, not the range of everything
