"""NVIDIA's ModelOpt reads the calibration caches that the tensorrt target writes."""

import numpy as np
import pytest

import onnxq
from tests.readers.environment import record, run_check
from tests.zoo import ZOO

pytestmark = pytest.mark.readers

MODELS = ["conv_bn_relu_residual", "mobilenet_like_clip_inputs", "unicode_names", "transformer_without_mask"]


def test_every_scale_is_read_as_it_was_chosen(tmp_path):
    results = {}
    for name in MODELS:
        case = ZOO[name]()
        results[name] = onnxq.quantize(case.model, backend="tensorrt", data=case.feeds, out=tmp_path / name)
    paths = {name: tmp_path / name / "model_calibration.cache" for name in MODELS}
    answer = run_check("modelopt", *paths.values())
    for name, result in results.items():
        wanted = {
            placement.tensor: float(result.qparams[placement.tensor].scale)
            for placement in result.plan
            if placement.role == "activation"
        }
        read = {tensor: np.float32(value) for tensor, value in answer["scales"][str(paths[name])].items()}
        assert wanted
        assert wanted.items() <= read.items()
        assert set(read.values()) == set(wanted.values())  # what moves into a quantized tensor has its scale
        record("modelopt", answer["version"], "tensorrt", name, "scales read from the calibration cache", len(read))


def test_a_damaged_cache_is_refused(tmp_path):
    case = ZOO[MODELS[0]]()
    onnxq.quantize(case.model, backend="tensorrt", data=case.feeds, out=tmp_path)
    path = tmp_path / "model_calibration.cache"
    path.write_text(path.read_text(encoding="utf-8")[:-3] + "\n", encoding="utf-8")
    with pytest.raises(pytest.fail.Exception, match="ended with exit code"):
        run_check("modelopt", path)
