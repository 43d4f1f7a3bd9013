"""Small files that mean a great deal: limits with a clear error, for every language that is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxq.config import read_config, read_document
from onnxq.errors import ConfigError

DEEP = "more than 64 levels"


def laughs(levels: int, link: str = "[{0}]") -> str:
    lines = ["a0: &a0 [lol]" if "<<" not in link else "a0: &a0 {x: 1}"]
    for level in range(1, levels):
        above = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} " + link.format(above))
    return "\n".join(lines)


TEXTS: dict[str, tuple[str, str, str]] = {
    "aliases of aliases": (
        "yaml",
        laughs(12),
        "yaml:7: cannot be read: with its aliases written out it holds more than",
    ),
    "merges of merges": ("yaml", laughs(12, "{{<<: [{0}], y: 2}}"), "with its aliases written out it holds more than"),
    "an alias of itself": ("yaml", "skip: &a [*a]", "yaml:1: cannot be read: an alias stands inside of what it is"),
    "a chain of aliases": ("yaml", "a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 99)), DEEP),
    "deep YAML": ("yaml", "a: " + "[" * 70 + "]" * 70, DEEP),
    "YAML too deep for its parser": ("yaml", "a: " + "[" * 600, DEEP),
    "deep JSON": ("json", '{"a": ' + "[" * 70 + "]" * 70 + "}", DEEP),
    "JSON too deep for its parser": ("json", '{"a": ' + "[" * 100_000, DEEP),
    "deep TOML": ("toml", "a = " + "[" * 70 + "]" * 70, DEEP),
    "TOML too deep for its parser": ("toml", "a = " + "[" * 5000, DEEP),
    "a key of very many parts": ("toml", ".".join(["a"] * 300_000) + " = 1", DEEP),
    "a table of very many parts": ("toml", "[" + " . ".join(['"a b"'] * 1000) + "]", DEEP),
    "too long": ("json", " " * 4_000_001, "a configuration at most 4,000,000"),
}


@pytest.mark.parametrize(("kind", "text", "message"), TEXTS.values(), ids=TEXTS)
def test_a_document_beyond_all_measure_is_refused_at_once(kind: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / f"given.{kind}"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"given\.{kind}") as caught:
        read_document(path)
    assert message in str(caught.value)


def test_aliases_in_measure_are_read(tmp_path: Path) -> None:
    path = tmp_path / "given.yaml"
    path.write_text("tensor:\n  a: &eight {bits: 8}\n  b: *eight\n  c: {<<: *eight, symmetric: true}\n")
    config = read_config(path)
    assert config.tensor["b"].bits == config.tensor["c"].bits == 8


def test_a_text_of_many_dots_is_no_key(tmp_path: Path) -> None:
    path = tmp_path / "given.toml"
    name = "/".join("layer." + str(number) for number in range(100))
    path.write_text(f'skip = ["{name}"]\n')
    assert read_config(path).skip == (name,)


@pytest.mark.parametrize("kind", ["toml", "yaml", "json"])
def test_the_mark_of_an_editor_in_front_is_taken_and_bytes_of_another_encoding_are_not(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / f"given.{kind}"
    text = {"toml": "samples = 3", "yaml": "samples: 3", "json": '{"samples": 3}'}[kind].encode()
    path.write_bytes(b"\xef\xbb\xbf" + text)
    assert read_config(path).samples == 3
    assert read_config(path).source("samples") == f"{path}:1"
    path.write_bytes(text.replace(b"samples", b"sampl\xe9s"))
    with pytest.raises(ConfigError, match="is no text in UTF-8"):
        read_config(path)


def test_a_long_value_is_shown_in_part(tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    path.write_text('{"samples": "' + "x" * 100_000 + '"}')
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert len(str(caught.value)) < 500
