"""Models that Ultralytics has exported, by their metadata: preprocessing, a reader for calibrators, one call."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.config import read_config
from onnxq.errors import ConfigError, DataError
from onnxq.integrations.ultralytics import CalibrationReader, Export, quantize

pillow = pytest.importorskip("PIL.Image")

METADATA = {"task": "detect", "imgsz": "[32, 64]", "stride": "32", "names": "{0: 'person', 1: 'car'}"}


def export(path, height="height", width="width", **metadata):
    """Two convolutions with SiLU, as the head of such a model has them."""
    random = np.random.default_rng(0)
    weights = [random.normal(0, 0.3, shape).astype(np.float32) for shape in ((8, 3, 3, 3), (4, 8, 1, 1))]
    nodes = [
        helper.make_node("Conv", ["images", "w0"], ["a"], "/model.0/conv/Conv", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["a"], ["s"], "/model.0/act/Sigmoid"),
        helper.make_node("Mul", ["a", "s"], ["m"], "/model.0/act/Mul"),
        helper.make_node("Conv", ["m", "w1"], ["output0"], "/model.1/conv/Conv"),
    ]
    graph = helper.make_graph(
        nodes,
        "main_graph",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, height, width])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["batch", 4, None, None])],
        [numpy_helper.from_array(array, f"w{number}") for number, array in enumerate(weights)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    helper.set_model_props(model, {**METADATA, **metadata})
    onnx.save(model, path)
    return path


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    random = np.random.default_rng(1)
    for number in range(6):
        values = random.integers(0, 256, (40 + 9 * number, 50, 3), np.uint8)
        pillow.fromarray(values).save(folder / f"{number}.png")
    (tmp_path / "data.yaml").write_text("path: photos\nval: .\ntrain: .\nnames: {0: person, 1: car}\n")
    return folder


def test_what_an_export_says_about_itself(tmp_path):
    free = Export.of(export(tmp_path / "m.onnx"))
    assert (free.task, free.image_size, free.fixed, free.stride) == ("detect", (32, 64), False, 32)
    assert free.names == {0: "person", 1: "car"}
    fixed = Export.of(export(tmp_path / "m.onnx", 64, 96, imgsz="640", names="{", stride="?", task="pose"))
    assert (fixed.task, fixed.image_size, fixed.fixed, fixed.stride, fixed.names) == ("pose", (64, 96), True, 32, {})


def test_detectors_are_letterboxed_and_classifiers_cropped(tmp_path):
    assert Export.of(export(tmp_path / "m.onnx")).preprocessing() == {"preset": "yolo", "resize": [32, 64]}
    classifier = Export.of(export(tmp_path / "m.onnx", task="classify", imgsz="64"))
    steps = {"preset": "unit", "interpolation": "bilinear"}
    assert classifier.preprocessing() == {**steps, "resize": 64, "crop": 64}
    assert classifier.preprocessing((64, 96)) == {**steps, "resize": [64, 96]}


def test_sizes_are_multiples_of_the_stride(tmp_path):
    free = Export.of(export(tmp_path / "m.onnx"))
    with pytest.warns(
        onnxq.OnnxqWarning, match=r"imgsz \(70, 70\) is no multiple of the stride 32: \(96, 96\) is taken"
    ):
        assert free.preprocessing(70)["resize"] == [96, 96]
    fixed = Export.of(export(tmp_path / "m.onnx", 64, 64))
    with pytest.raises(ConfigError, match=r"the input of the model is \(64, 64\) .* imgsz is \(32, 32\)"):
        fixed.preprocessing(32)
    with pytest.raises(ConfigError, match="imgsz is one number or"):
        free.preprocessing((1, 2, 3))
    with pytest.raises(ConfigError, match="its size is free, and the metadata names no imgsz"):
        Export.of(export(tmp_path / "m.onnx", imgsz="nothing")).preprocessing()


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_three_lines_for_each_target(tmp_path, photos, backend):
    out = tmp_path / backend
    model = export(tmp_path / "m.onnx")
    result = quantize(model, backend=backend, data=tmp_path / "data.yaml", out=out, config={"effort": 0})
    assert read_config(out / "config.json").preprocess == {"preset": "yolo", "resize": [32, 64]}
    written = onnx.load(out / "model.onnx")
    assert {entry.key: entry.value for entry in written.metadata_props} == METADATA
    assert result.sqnr_db["output0"] > 20


def test_settings_of_ones_own_win_and_nothing_is_ignored(tmp_path, photos):
    model = export(tmp_path / "m.onnx")
    config = {"effort": 0, "preprocess": {"preset": "unit", "resize": [64, 64]}}
    result = quantize(model, backend="onnxruntime", data=photos, config=config, out=tmp_path / "out")
    assert read_config(tmp_path / "out/config.json").preprocess == config["preprocess"]
    assert result.report["calibration_samples"] == 6
    with pytest.raises(ConfigError, match="imgsz decides how images are preprocessed"):
        quantize(model, backend="onnxruntime", data=photos, config=config, imgsz=64)
    with pytest.raises(ConfigError, match=r"split='val' chooses a part of a data\.yaml"):
        quantize(model, backend="onnxruntime", data=photos, split="val")
    with pytest.raises(DataError, match=r"is neither a data\.yaml nor an image"):
        CalibrationReader(model, tmp_path / "m.onnx")


def test_models_that_take_no_images_are_refused(tmp_path):
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    with pytest.raises(ConfigError, match=r"The inputs of this one: 'x' float32 \[1, 4\]"):
        Export.of(model)


def test_the_reader_works_in_onnxruntime_quantization(tmp_path, photos):
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    model = export(tmp_path / "m.onnx")
    reader = CalibrationReader(model, tmp_path / "data.yaml", samples=4)
    assert isinstance(reader, CalibrationDataReader)
    assert len(reader) == 4
    quantize_static(model, tmp_path / "theirs.onnx", reader)
    kinds = {node.op_type for node in onnx.load(tmp_path / "theirs.onnx").graph.node}
    assert "QuantizeLinear" in kinds
    assert reader.get_next() is None
    reader.rewind()
    assert len(list(reader)) == 4
    reader.set_range(1, 3)
    assert len(list(reader)) == 2
    reader.rewind()
    result = onnxq.quantize(model, backend="onnxruntime", data=reader, config={"effort": 0})
    assert result.report["calibration_samples"] == 4
