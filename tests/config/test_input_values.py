"""Values and shapes that an input cannot have are refused with the line that gave them, never bent until they fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxq.config import read_config
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.session.model_io import apply_io_settings

MODEL = """<ir_version: 9, opset_import: ["" : 17]>
    g (float[n,n] x, int64[2] count, uint8[2] pixels, float16[2] half, bool[2] flag) => (float[n,n] o) {
        w = Constant <value = float {1.0}> ()
        a = Relu (x)
        o = Mul (a, w)
    }"""


def graph() -> Graph:
    return Graph.from_model(onnx.parser.parse_model(MODEL))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", 0.5),
        ("count", [1, 2.5]),
        ("count", 2**70),
        ("count", float("nan")),
        ("pixels", 300),
        ("pixels", -1),
        ("half", 1e9),
        ("flag", 2),
        ("count", "many"),
    ],
)
def test_a_value_that_the_type_of_an_input_cannot_hold_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"inputs": {name: {"value": value}}}, indent=1))
    with pytest.raises(ConfigError, match=rf"input '{name}'.*settings\.json:3\)"):
        apply_io_settings(graph(), read_config(path))


@pytest.mark.parametrize(
    ("name", "value", "held"),
    [
        ("count", 3, [3, 3]),
        ("count", [1.0, 2.0], [1, 2]),
        ("pixels", 255, [255, 255]),
        ("half", 0.5, [0.5, 0.5]),
        ("half", float("inf"), [np.inf, np.inf]),
        ("flag", [True, 0], [True, False]),
    ],
)
def test_a_value_that_fits_is_what_the_model_computes_with(name: str, value: Any, held: list[Any]) -> None:
    changed = graph()
    kind = changed.dtype(name)
    apply_io_settings(changed, read_config({"inputs": {name: {"value": value}}}))
    assert name not in changed.input_names
    values = changed.values(changed.origins.current_tensor(name))
    assert values.dtype == kind
    assert values.tolist() == held


def test_a_dimension_that_is_there_twice_gives_its_size_to_what_shares_it() -> None:
    square = graph()
    apply_io_settings(square, read_config({"inputs": {"x": {"shape": [2, 2]}}}))
    assert square.shape("o") == (2, 2)


def test_a_name_that_gets_two_sizes_is_no_name_any_more() -> None:
    """Its other places have sizes that nobody knows, where shape inference does not find them."""
    oblong = graph()
    apply_io_settings(oblong, read_config({"inputs": {"x": {"shape": [2, 3]}}}))
    assert oblong.shape("x") == (2, 3)
    assert oblong.shape("o") == oblong.written_shape("o") == (2, 3)
    assert not [name for name in oblong.input_names if "n" in (oblong.shape(name) or ())]


@pytest.mark.parametrize(
    ("pattern", "message"), [("aa", "matches no tensor"), ("w", "is a constant"), ("w*", "nothing but constants")]
)
def test_an_extra_output_that_is_not_possible_names_its_line(pattern: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f'\nextra_outputs = ["{pattern}"]\n')
    with pytest.raises(ConfigError, match=rf"'{pattern[0]}.*{message}.*settings\.toml:2\)"):
        apply_io_settings(graph(), read_config(path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("date.yaml", "name: 2020-13-45"),
        ("number.json", '{"samples": ' + "1" * 5000 + "}"),
        ("deep.json", "[" * 200000),
    ],
)
def test_a_file_that_its_parser_gives_up_on_is_an_error_with_its_name(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"{name} cannot be read"):
        read_config(path)
