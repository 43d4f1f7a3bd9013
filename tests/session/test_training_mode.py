"""A batch norm that was exported in training mode is never silent."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

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
