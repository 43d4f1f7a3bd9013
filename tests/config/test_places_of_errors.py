"""Whatever is wrong with a value, the error names its key and its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onnxq.config import read_config
from onnxq.errors import ConfigError

WRONG: list[tuple[dict[str, Any], int, str, str]] = [
    ({"weight": {"observer": "minmx"}}, 3, "weight.observer", "unknown observer 'minmx'. Did you mean 'minmax'"),
    ({"tensor": {"a": {"dtype": "int33"}}}, 4, "tensor.a.dtype", "unknown dtype 'int33'"),
    ({"op": {"Conv": {"weight": {"bits": 20}}}}, 5, "op.Conv.weight.bits", "bits must be 1 .. 16"),
    ({"node": {"a": {"output": {"fake_quantizer": "lsp"}}}}, 5, "node.a.output.fake_quantizer", "unknown"),
    ({"node": {"a": {"output": {"skip": True, "observe_only": True}}}}, 4, "node.a.output", "contradict each other"),
    ({"tensor": {"a": {"dtype": "int8", "bits": 4}}}, 3, "tensor.a", "contradict each other"),
    ({"samples": 4, "memory_limit": "much"}, 3, "memory_limit", "a memory size is a number with a unit"),
    ({"samples": 4, "observer": "minmx"}, 3, "observer", "unknown observer"),
    ({"samples": 4, "name": "a/b"}, 3, "name", "must be a plain name"),
    ({"samples": 4, "name": "a\0b"}, 3, "name", "must be a plain name"),
    ({"samples": 4, "name": "a" * 300}, 3, "name", "must be a plain name"),
    ({"samples": 4, "preprocess": "imagnet"}, 3, "preprocess", "there is no preset 'imagnet'"),
]


@pytest.mark.parametrize(("config", "line", "key", "message"), WRONG)
def test_a_value_that_means_nothing_is_named_with_its_line(
    config: dict[str, Any], line: int, key: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(config, indent=1))
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(caught.value).startswith(f"{path}:{line}: '{key}': ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"weight": {"observer": [1]}}, "'weight.observer': must be text or a table with a name (got [1])"),
        ({"memory_limit": 1.5}, "'memory_limit': must be text or a whole number (got 1.5)"),
        ({"inputs": {"x": {"shape": [[1]]}}}, "'inputs.x.shape.0': must be a whole number or text (got [1])"),
        ({"tensor": {"observer": {"str": 1}}}, "unknown key 'tensor.observer.str'"),
    ],
)
def test_a_value_of_none_of_its_kinds_is_one_error_in_plain_words(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(config)
    assert str(caught.value).startswith(f"configuration: {message}")
    assert ";" not in str(caught.value)


def test_a_file_given_with_a_dot_in_front_has_lines_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.toml").write_text("\nsamples = 'many'\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^run\.toml:2: 'samples'"):
        read_config("./run.toml")
