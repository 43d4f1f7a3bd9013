"""Evaluation data: files, arrays and functions with labels; what does not fit is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxq.demo import load_data, model_path
from onnxq.errors import DataError
from onnxq.graph import Graph
from onnxq.mixed_precision.evaluation import ROWS, EvaluationSet, open_evaluation
from onnxq.runtime import input_infos, open_dataset
from tests.zoo_graphs.net import Net

IMAGES, LABELS = load_data().test_images[:20], load_data().test_labels[:20]


def opened(source: Any, *, model: onnx.ModelProto | None = None, **named: Any) -> EvaluationSet:
    graph = Graph.load(model_path()) if model is None else Graph.from_model(model)
    calibration = open_dataset(load_data().calibration[:40] if model is None else [], input_infos(graph))
    return open_evaluation(source, graph, calibration, **named)


def joined(found: EvaluationSet) -> np.ndarray:
    return np.concatenate([feed["image"] for feed in found.feeds])


@pytest.mark.parametrize("label", ["labels", "label", "y", "targets", "target"])
def test_a_file_with_labels_under_their_usual_names(tmp_path: Path, label: str) -> None:
    np.savez(tmp_path / "test.npz", image=IMAGES, **{label: LABELS})
    found = opened(str(tmp_path / "test.npz"))
    np.testing.assert_array_equal(joined(found), IMAGES)
    np.testing.assert_array_equal(found.labels, LABELS)
    assert [len(feed["image"]) for feed in found.feeds] == [ROWS, 20 - ROWS]
    assert found.first()["image"].shape == (1, 1, 8, 8)


def test_labels_under_a_name_of_their_own_and_fewer_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "test.npz", image=IMAGES, digit=LABELS)
    found = opened(tmp_path / "test.npz", labels="digit", limit=7)
    assert len(joined(found)) == 7
    np.testing.assert_array_equal(found.labels, LABELS[:7])


@pytest.mark.parametrize(
    "source",
    [
        (IMAGES, LABELS),
        ({"image": IMAGES}, LABELS),
        {"image": IMAGES, "labels": LABELS},
        lambda: (IMAGES, LABELS),
        lambda: {"image": IMAGES, "y": LABELS},
        ((IMAGES,), LABELS),
    ],
    ids=range(6),
)
def test_arrays_and_functions_of_them(source: Any) -> None:
    found = opened(source)
    np.testing.assert_array_equal(joined(found), IMAGES)
    np.testing.assert_array_equal(found.labels, LABELS)


def test_a_function_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_test_data.py").write_text(
        "from onnxq.demo import load_data\n"
        "def some():\n    return load_data().test_images[:6], load_data().test_labels[:6]\n"
        "def nothing():\n    pass\n"
        "def broken():\n    return 1 / 0\n"
    )
    assert len(joined(opened("own_test_data:some"))) == 6
    assert len(joined(opened("own_test_data.py:some"))) == 6
    with pytest.raises(DataError, match="function 'nothing' returned nothing"):
        opened("own_test_data:nothing")
    with pytest.raises(DataError, match=r"ZeroDivisionError.*own_test_data\.py, line 7"):
        opened("own_test_data:broken")


def test_what_calibration_takes_has_no_labels() -> None:
    assert opened(None).labels is None
    assert len(opened(None).feeds) == 32
    assert len(opened(None, limit=3).feeds) == 3
    feeds = [{"image": image[np.newaxis]} for image in IMAGES[:5]]
    assert len(opened(feeds).feeds) == 5


def fixed_batch() -> onnx.ModelProto:
    net = Net("fixed")
    net.node("Relu", net.input("image", (3, 2)), output="y")
    net.output("y", (3, 2))
    return net.model()


def test_a_model_for_several_samples_at_a_time_gets_them() -> None:
    found = opened((np.ones((8, 2), np.float32), np.arange(8)), model=fixed_batch())
    assert [feed["image"].shape for feed in found.feeds] == [(3, 2), (3, 2)]
    np.testing.assert_array_equal(found.labels, np.arange(6))
    assert found.first()["image"].shape == (3, 2)
    assert "the first 6 are used" in found.notes[0]


def test_samples_that_influence_each_other_are_run_alone() -> None:
    net = Net("batch")
    x = net.input("image", ("n", 4))
    net.node("Sub", x, net.node("ReduceMean", x, axes=[0], keepdims=1), output="y")
    net.output("y", ("n", 4))
    values = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    assert [len(feed["image"]) for feed in opened(values, model=net.model()).feeds] == [1] * 6


@pytest.mark.parametrize(
    ("source", "named", "message"),
    [
        ((IMAGES, LABELS[:-1]), {}, "20 of 'image', 19 of 'labels'"),
        ({"image": IMAGES, "labels": LABELS}, {"labels": "lables"}, "no labels under 'lables'. Did you mean 'labels'"),
        ({"picture": IMAGES}, {}, "'picture', which is no input of the model"),
        ((IMAGES[:, :, :4], LABELS), {}, "dimension 2 is 4 instead of 8"),
        ((IMAGES, LABELS, LABELS), {}, "3 elements, but the model has the inputs image"),
        ((IMAGES, 3), {}, "a single number"),
        ("missing.npz", {}, "'missing.npz' does not exist"),
        ("no_module:function", {}, "cannot import 'no_module'"),
        (None, {"labels": "y"}, "calibration data has none"),
        ((IMAGES, LABELS), {"limit": 0}, "at least 1 sample"),
    ],
)
def test_what_does_not_fit_is_named(source: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        opened(source, **named)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_text("no archive")
    with pytest.raises(DataError, match=r"cannot read '.*broken\.npz'"):
        opened(tmp_path / "broken.npz")
