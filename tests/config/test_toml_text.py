"""Settings written as TOML are read as they were."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from onnxq.config import read_config
from onnxq.config.toml_text import toml_line, toml_text, write_toml
from onnxq.runtime.preprocessing import Preprocessing

VALUES: dict[str, Any] = {
    "backend": "qnn:activation=uint16",
    "skip": ["/a/b", 'quoted "name"', "op:Softmax"],
    "tensor": {"/model/Add.0": {"dtype": "uint16", "symmetric": False}, "ä\x7f\n": {"skip": True}},
    "preprocess": {"scale": 1 / 255, "mean": [0.485, 0.456, 0.406]},
    "samples": 12,
}


def test_a_document_comes_back_from_its_text() -> None:
    assert tomllib.loads(toml_text(VALUES)) == VALUES


def test_a_line_says_one_setting_at_its_full_path() -> None:
    line = toml_line(("tensor", "/a", "dtype"), "uint16")

    assert line == 'tensor."/a".dtype = "uint16"'
    assert tomllib.loads(line) == {"tensor": {"/a": {"dtype": "uint16"}}}


@pytest.mark.parametrize("value", [True, 3, 0.1, "x", [1, 2], {"a b": [0.5]}, 1e-300])
def test_values_keep_their_kind(value: Any) -> None:
    assert tomllib.loads(toml_line(("key",), value)) == {"key": value}


def test_a_written_file_is_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    write_toml(path, {"backend": "qnn", "tensor": {"x": {"dtype": "uint16"}}})

    assert read_config(path).tensor["x"].dtype == "uint16"


def test_what_is_none_is_not_said() -> None:
    values: dict[str, Any] = {
        "preprocess": asdict(Preprocessing(resize=8)),
        "list": [{"a": None, "b": 1}],
        "samples": None,
    }

    read = tomllib.loads(toml_text(values))

    assert read["preprocess"] == {key: value for key, value in values["preprocess"].items() if value is not None}
    assert read["list"] == [{"b": 1}]
    assert "samples" not in read
