"""The demo's model and data are what the demo promises: small, documented, and accurate before quantization."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxq import demo


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(demo.model_path())


@pytest.fixture(scope="module")
def data() -> demo.DemoData:
    return demo.load_data()


def test_the_float_model_classifies_the_held_out_images(data: demo.DemoData) -> None:
    session = onnxruntime.InferenceSession(str(demo.model_path()), providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"image": data.test_images})
    assert logits.shape == (len(data.test_labels), 10)
    assert (logits.argmax(axis=1) == data.test_labels).mean() >= 0.97


def test_the_images_have_the_shape_and_range_the_model_was_trained_on(data: demo.DemoData) -> None:
    assert data.calibration.shape == (128, 1, 8, 8)
    assert data.test_images.shape == (450, 1, 8, 8)
    assert data.test_labels.shape == (450,)
    for images in (data.calibration, data.test_images):
        assert images.dtype == np.float32
        assert images.min() == 0.0
        assert images.max() == 1.0
    assert set(data.test_labels.tolist()) == set(range(10))


def test_no_test_image_is_among_the_calibration_images(data: demo.DemoData) -> None:
    calibration = {image.tobytes() for image in data.calibration}
    assert not any(image.tobytes() in calibration for image in data.test_images)


def test_both_files_together_stay_below_a_megabyte() -> None:
    folder = demo.model_path().parent
    assert sum((folder / name).stat().st_size for name in ("digits.onnx", "digits.npz")) < 1_000_000


def test_the_model_is_valid_and_says_what_it_is(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert "digits" in metadata["description"]
    assert "scikit-learn" in metadata["dataset"]
    assert "Apache-2.0" in metadata["licence"]


def test_the_model_takes_any_batch_and_opset_17(model: onnx.ModelProto) -> None:
    (image,), (logits,) = model.graph.input, model.graph.output
    assert (image.name, logits.name) == ("image", "logits")
    assert image.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert [dim.dim_value for dim in image.type.tensor_type.shape.dim][1:] == [1, 8, 8]
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]


def test_the_model_still_has_what_the_passes_work_on(model: onnx.ModelProto) -> None:
    ops = [node.op_type for node in model.graph.node]
    assert ops.count("Conv") == ops.count("BatchNormalization") == 6
    assert {"Add", "Clip", "MaxPool", "GlobalAveragePool", "Flatten", "Gemm"} <= set(ops)
    assert {"stem.conv", "stem.bn"} <= {node.name for node in model.graph.node}
