"""The preset `yolo` beside Ultralytics' own LetterBox: the same bits for every shape of image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxq.config import read_config
from onnxq.integrations.ultralytics import CalibrationReader, quantize
from tests.readers.environment import record, run_check
from tools.zoo.packages import Cache, PackagedFile, Unavailable, default_cache, pypi

pillow = pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.readers

NUDENET = PackagedFile(pypi("nudenet==3.4.2"), "nudenet/320n.onnx")


def photographs(folder: Path) -> None:
    """Noise with structure in many shapes: larger, smaller, thin, exactly twice the size, gray, with an odd border."""
    random = np.random.default_rng(0)
    sizes = [(480, 640), (640, 480), (97, 33), (1, 300), (640, 640), (320, 320), (200, 641), (1000, 31), (333, 500)]
    for number, (height, width) in enumerate(sizes):
        coarse = random.integers(0, 256, (height // 7 + 1, width // 5 + 1, 3), np.uint8)
        fine = np.kron(coarse, np.ones((7, 5, 1), np.uint8))[:height, :width]
        noisy = np.clip(fine + random.normal(0, 20, fine.shape), 0, 255).astype(np.uint8)
        image = pillow.fromarray(noisy).convert("L" if number == 2 else "RGB")
        image.save(folder / f"{number}.{'jpg' if number % 2 else 'png'}", quality=90)


def export(path: Path) -> Path:
    shape = ["batch", 3, "height", "width"]
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("images", "output0")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["images"], ["output0"])], "g", info[:1], info[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10)
    onnx.helper.set_model_props(model, {"imgsz": "[320, 320]", "stride": "32", "task": "detect"})
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("size", [(320, 320), (256, 416)])
def test_images_are_those_of_ultralytics_to_the_bit(tmp_path: Path, size: tuple[int, int]) -> None:
    (tmp_path / "photos").mkdir()
    photographs(tmp_path / "photos")
    answer = run_check("ultralytics", tmp_path / "photos", *map(str, size), tmp_path / "theirs.npz")
    theirs = np.load(tmp_path / "theirs.npz")
    feeds = list(CalibrationReader(export(tmp_path / "model.onnx"), tmp_path / "photos", imgsz=size))
    assert len(feeds) == len(theirs.files) == answer["images"] == 9
    for name, feed in zip(sorted(theirs.files), feeds, strict=True):
        assert feed["images"].dtype == np.float32
        assert np.array_equal(feed["images"][0], theirs[name]), name
    if size == (320, 320):
        what = f"images prepared as by its LetterBox (OpenCV {answer['opencv']}): images that differ in a bit"
        record("ultralytics", answer["version"], "any", "nine shapes", what, 0)


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt", "openvino", "rknn"])
def test_a_yolov8n_is_quantized_for_each_target_in_one_call(tmp_path: Path, backend: str) -> None:
    try:
        model = Cache(default_cache()).file(NUDENET)
    except Unavailable as error:
        pytest.skip(str(error))
    (tmp_path / "photos").mkdir()
    photographs(tmp_path / "photos")
    (tmp_path / "data.yaml").write_text("path: photos\nval: .\n")
    result = quantize(model, backend=backend, data=tmp_path / "data.yaml", out=tmp_path / "out", config={"effort": 0})
    assert read_config(tmp_path / "out/config.json").preprocess == {"preset": "yolo", "resize": [320, 320]}
    assert result.report["calibration_samples"] == 9
    assert result.sqnr_db["output0"] > 12
    written = {entry.key: entry.value for entry in onnx.load(result.model).metadata_props}
    assert (written["task"], written["imgsz"], written["stride"]) == ("detect", "[320, 320]", "32")
