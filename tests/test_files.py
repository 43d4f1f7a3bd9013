"""JSON files are those that Python's own encoder writes, written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.files import write_json

VALUES = [
    {},
    [],
    [[], {}],
    None,
    '\u00fc \u2028 \x01 " \\ \n',
    {"a": {}, "b": [1, 2.5, [3, [4, {"x": None, "y": True, "z": False}]]], "\n": "\t"},
    {2: 1, None: 3, True: 4, 1.5: []},
    [np.float64(0.1), 1e300, 5e-324, -0.0, 2**70],
    {"tuple": (1, (2,)), "deep": [[[[[[{"a": [1]}]]]]]], "empty": ()},
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_json_is_written_as_python_writes_it(value: Any, tmp_path: Path) -> None:
    write_json(tmp_path / "file.json", value)
    expected = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    assert (tmp_path / "file.json").read_bytes() == expected.encode()


@pytest.mark.parametrize("value", [float("nan"), [1, [np.float64("inf")]], {"a": {"b": {"c": object()}}}])
def test_what_json_has_no_text_for_leaves_no_file(value: Any, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError)):
        write_json(tmp_path / "file.json", value)
    assert not list(tmp_path.iterdir())
