"""The stages take a target as a value; its name is an error that says where the value is."""

from __future__ import annotations

import pytest

import onnxq
from onnxq.demo import model_path


def test_the_name_of_a_target_is_told_from_its_value() -> None:
    graph = onnxq.load(model_path())
    with pytest.raises(onnxq.ConfigError, match=r"takes a target as a value, not 'qnn'.*onnxq\.get_backend"):
        onnxq.lint(model_path(), "qnn")  # type: ignore[arg-type]
    with pytest.raises(onnxq.ConfigError, match=r"onnxq\.get_backend"):
        onnxq.place(graph, "qnn")  # type: ignore[arg-type]
    assert onnxq.lint(model_path(), onnxq.get_backend("qnn")) == []
