"""`onnxq evaluate`: the same figures as by hand, for the float model, files and what targets compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from onnxq.demo import load_data

SAMPLES = 48


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labelled") / "test.npz"
    data = load_data()
    np.savez(path, image=data.test_images[:SAMPLES], labels=data.test_labels[:SAMPLES])
    return path


def by_hand(model: Path, data: Path) -> float:
    """The accuracy of a model in a session of its own, which keeps pairs as they are."""
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    arrays = np.load(data)
    name = session.get_inputs()[0].name
    outputs = [session.run(None, {name: arrays["image"][i : i + 1]})[0] for i in range(SAMPLES)]
    return float((np.concatenate(outputs).argmax(axis=1) == arrays["labels"]).mean())


def test_accuracy_is_what_a_session_of_ones_own_gives(run: Any, model: Path, finished: Path, labelled: Path) -> None:
    words = ("-d", labelled, "--metric", "accuracy", "--metric", "agreement")
    result = run("evaluate", model, finished, *words, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    file, simulated = f"{finished / 'model.onnx'} (file)", f"{finished / 'model.onnx'} (simulated)"
    assert list(document["models"]) == [file, simulated]
    assert document["samples"] == SAMPLES
    assert document["float"]["accuracy"] == by_hand(model, labelled)
    assert document["float"]["agreement"] == 1.0
    assert document["models"][file]["accuracy"] == by_hand(finished / "model.onnx", labelled)
    assert document["models"][simulated] == document["models"][file]
    shown = run("evaluate", model, finished / "model.onnx", *words)
    assert "points" in shown.stdout
    assert "(simulated)" not in shown.stdout


def test_a_metric_of_ones_own(
    run: Any, model: Path, finished: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        "def wrong(outputs, labels):\n"
        "    (classes,) = outputs.values()\n"
        "    return (classes.argmax(1) != labels).sum()\n"
        "def broken(outputs, labels):\n"
        "    return labels.missing\n"
    )
    words = ("evaluate", model, finished / "model.onnx", "-d", labelled)
    document = json.loads(run(*words, "--metric", "own.py:wrong", "--json").stdout)
    assert document["float"]["wrong"] == pytest.approx(SAMPLES * (1 - by_hand(model, labelled)))
    (values,) = document["models"].values()
    assert values["wrong"] == pytest.approx(SAMPLES * (1 - by_hand(finished / "model.onnx", labelled)))
    result = run(*words, "--metric", "own.py:broken")
    assert result.exit_code == 2
    assert "metric 'broken' failed: AttributeError" in result.stderr


def test_without_labels_models_are_held_against_float(run: Any, model: Path, finished: Path, data: Path) -> None:
    result = run("evaluate", model, finished, "-d", data, "--samples", 4)
    assert result.exit_code == 0, result.stderr
    assert "4 samples" in result.stdout
    assert "against float" not in result.stdout
    report = json.loads((finished / "report.json").read_text())
    assert min(float(value) for value in report["sqnr_db"].values()) > 10
    assert " dB" in result.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("MODEL OUT -d DATA --metric accuracy", "accuracy needs labels"),
        ("MODEL OUT -d DATA --metric nothing", "unknown metric 'nothing'"),
        ("MODEL OUT -d DATA --metric sqnr_db --metric sqnr_db", "asked for twice"),
        ("MODEL OUT -d DATA --metric nowhere:f", "cannot import 'nowhere'"),
        ("MODEL EMPTY -d DATA", "holds no report.json"),
        ("MODEL gone.onnx -d DATA", "gone.onnx"),
        ("MODEL OUT -d gone.npz", "gone.npz"),
        ("MODEL OUT", "--data"),
    ],
)
def test_bad_input(words: str, told: str, run: Any, model: Path, finished: Path, data: Path, tmp_path: Path) -> None:
    places = {"MODEL": model, "OUT": finished / "model.onnx", "EMPTY": tmp_path, "DATA": data}
    result = run("evaluate", *(places.get(word, word) for word in words.split()))
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stdout == ""


def test_a_model_that_was_not_made_of_the_float_model(run: Any, model: Path, data: Path, tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])] for name in ("image", "other")]
    graph = helper.make_graph([helper.make_node("Relu", ["image"], ["other"])], "g", *ports)
    path = tmp_path / "other.onnx"
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)]), path)
    result = run("evaluate", model, path, "-d", data)
    assert result.exit_code == 2
    assert "was not made of this float model: it has no output" in result.stderr
