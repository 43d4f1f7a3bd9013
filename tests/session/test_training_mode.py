"""A batch norm or a dropout that was exported in training mode is never silent."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq.errors import CheckFailed
from onnxq.qat import prepare
from onnxq.qat.early import refuse_early
from onnxq.session.session import open_session
from tests.passes.equivalence import build_model


@pytest.mark.parametrize("training", [0, 1])
def test_batch_norms_in_training_mode_are_a_warning(training: int) -> None:
    weight = np.random.default_rng(0).normal(0, 1, (4, 3, 1, 1)).astype(np.float32)
    vectors = {name: np.ones(4, np.float32) for name in ("gamma", "beta", "mean", "var")}
    conv = helper.make_node("Conv", ["x", "w"], ["c"], name="conv")
    outputs = ["y", "rm", "rv"] if training else ["y"]
    norm = helper.make_node("BatchNormalization", ["c", *vectors], outputs, name="bn", training_mode=training)
    model = build_model([conv, norm], {"x": [2, 3, 3, 3]}, ["y"], {"w": weight, **vectors}, opset=17)
    notes = open_session(model, backend="tensorrt").plan().notes
    said = [note for note in notes if "training mode ('bn')" in note]
    assert len(said) == training
    assert all("Export the model in eval()" in note for note in said)


@pytest.mark.parametrize("training", [False, True])
def test_dropouts_in_training_mode_are_a_warning(training: bool) -> None:
    model = dropping_model(training)
    notes = open_session(model, backend="tensorrt").plan().notes
    said = [note for note in notes if "1 Dropout nodes are in training mode ('drop')" in note]
    assert len(said) == training


def test_a_training_names_the_dropout_that_makes_results_random() -> None:
    data = [{"x": np.random.default_rng(seed).normal(0, 1, (2, 3, 8, 8)).astype(np.float32)} for seed in range(4)]
    net = prepare(dropping_model(training=True), backend="tensorrt", data=data)
    with pytest.raises(CheckFailed, match=r"'drop' is a Dropout in training mode.*export the model in eval\(\)"):
        refuse_early(net)


def dropping_model(training: bool) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, 1, (4, 4, 1, 1)).astype(np.float32) for name in ("w1", "w2")}
    weights["w1"] = weights["w1"][:, :3]
    values = {**weights, "ratio": np.float32(0.5), "mode": np.bool_(training)}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], name="conv"),
        helper.make_node("Dropout", ["c", "ratio", "mode"], ["d"], name="drop"),
        helper.make_node("Conv", ["d", "w2"], ["y"], name="last"),
    ]
    return build_model(nodes, {"x": [2, 3, 8, 8]}, ["y"], values, opset=17)
