"""`onnxq.evaluate`: metrics of a float model and of what was made of it, from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError, DataError

SAMPLES = 48


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> onnxq.Result:
    data = {"image": load_data().calibration[:16]}
    out = tmp_path_factory.mktemp("run") / "out"
    return onnxq.quantize(model_path(), backend="tensorrt", data=data, config={"effort": 0}, out=out)


def labelled() -> dict[str, np.ndarray]:
    data = load_data()
    return {"image": data.test_images[:SAMPLES], "labels": data.test_labels[:SAMPLES]}


def test_files_folders_results_and_models_in_memory_are_the_same_models(result: onnxq.Result) -> None:
    proto = onnx.load(result.model)
    given = (result, result.model, str(result.folder), onnxq.load(result.model), proto)
    found = onnxq.evaluate(model_path(), *given, data=labelled(), metric=["accuracy", "agreement"])
    first, *others = found.of_models.values()
    assert len(others) == 4
    assert all(one == first for one in others)
    assert str(result.model) in found.of_models
    assert found.samples == SAMPLES
    assert found.of_float["agreement"] == 1.0
    assert 0.8 < first["accuracy"] <= 1.0


def test_a_function_is_a_metric_and_notebooks_show_a_row_for_each_model(result: onnxq.Result) -> None:
    def wrong(outputs: dict[str, np.ndarray], labels: np.ndarray) -> float:
        return float((outputs["logits"].argmax(1) != labels).sum())

    found = onnxq.evaluate(onnxq.load(model_path()), result, data=labelled(), metric=wrong)
    assert found.of_float["wrong"] == int(found.of_float["wrong"])
    assert repr(found).startswith(f"<Evaluation on {SAMPLES} samples: float wrong ")
    assert len(repr(found)) < 200
    assert found._repr_html_().count("<tr>") == 3


def test_the_data_of_quantize_holds_models_against_float(result: onnxq.Result, tmp_path: Path) -> None:
    for number, image in enumerate(load_data().calibration[:6]):
        np.savez(tmp_path / f"{number}.npz", image=image[None])
    found = onnxq.evaluate(model_path(), result, data=tmp_path, samples=4)
    assert found.samples == 4
    assert found.of_models[str(result.model)]["sqnr_db"] > 25
    layers = onnxq.compare(model_path(), result, data=tmp_path)
    assert [one.tensor for one in layers] == [one.tensor for one in onnxq.compare(model_path(), result.model, tmp_path)]


def test_what_cannot_be_evaluated_is_said(result: onnxq.Result) -> None:
    images = {"image": load_data().calibration[:4]}
    with pytest.raises(ConfigError, match="unknown metric 'accurcy'"):
        onnxq.evaluate(model_path(), result, data=images, metric="accurcy")
    with pytest.raises(ConfigError, match="metric is empty"):
        onnxq.evaluate(model_path(), result, data=images, metric=[])
    with pytest.raises((ConfigError, DataError), match="needs labels"):
        onnxq.evaluate(model_path(), result, data=images, metric="accuracy")
