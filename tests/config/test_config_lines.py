"""Lines of TOML, YAML and JSON files: of keys, however they are written, and of the texts in lists."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.config.lines import line_numbers

TOML = '''# a run
backend = "tensorrt"   # ["not a list"]

skip = ["stem.conv", "head.*"]
force = [
  # "nothing.here"
  "layer1.conv",
  'layer2.conv', "layer1.conv",
]
activation = { bits = 8, observer = { name = "percentile", percentile = 99.9 } }
weight.bits = 4
'output'."skip" = true

[op.Conv]
weight.observer = """
[node.fake]
skip = true"""""

  [node."/layer1/conv.1".weight]   # a comment with ] and "
per_channel = true
note = \'\'\'
a = 1
\'\'\'

[[rules]]
name = "first"
[[rules]]
name = "second"
[rules.inner]
deep = [{ a = 1 }, { a = 2 }]
[[rules.more]]
x = ["y"]
'''


def test_lines_of_a_toml_file() -> None:
    tomllib.loads(TOML)
    lines = line_numbers(TOML, "toml")
    assert lines == {
        ("backend",): 2,
        ("skip",): 4,
        ("skip", "stem.conv"): 4,
        ("skip", "head.*"): 4,
        ("force",): 5,
        ("force", "layer1.conv"): 7,
        ("force", "layer2.conv"): 8,
        ("activation",): 10,
        ("activation", "bits"): 10,
        ("activation", "observer"): 10,
        ("activation", "observer", "name"): 10,
        ("activation", "observer", "percentile"): 10,
        ("weight",): 11,
        ("weight", "bits"): 11,
        ("output",): 12,
        ("output", "skip"): 12,
        ("op",): 14,
        ("op", "Conv"): 14,
        ("op", "Conv", "weight"): 15,
        ("op", "Conv", "weight", "observer"): 15,
        ("node",): 19,
        ("node", "/layer1/conv.1"): 19,
        ("node", "/layer1/conv.1", "weight"): 19,
        ("node", "/layer1/conv.1", "weight", "per_channel"): 20,
        ("node", "/layer1/conv.1", "weight", "note"): 21,
        ("rules",): 25,
        ("rules", "0"): 25,
        ("rules", "0", "name"): 26,
        ("rules", "1"): 27,
        ("rules", "1", "name"): 28,
        ("rules", "1", "inner"): 29,
        ("rules", "1", "inner", "deep"): 30,
        ("rules", "1", "inner", "deep", "0"): 30,
        ("rules", "1", "inner", "deep", "0", "a"): 30,
        ("rules", "1", "inner", "deep", "1"): 30,
        ("rules", "1", "inner", "deep", "1", "a"): 30,
        ("rules", "1", "more"): 31,
        ("rules", "1", "more", "0"): 31,
        ("rules", "1", "more", "0", "x"): 32,
        ("rules", "1", "more", "0", "x", "y"): 32,
    }


def test_toml_with_windows_line_ends_has_the_same_lines() -> None:
    assert line_numbers(TOML.replace("\n", "\r\n"), "toml") == line_numbers(TOML, "toml")


def test_lines_of_a_yaml_file() -> None:
    text = """\
base: &base
  bits: 4
  symmetric: true

op:
  Conv:
    weight:
      <<: *base
      bits: 8
skip:
- stem.conv
- "head: *"
- 3
fuse: [[Conv, Relu],
       [Add]]
rules:
- name: a
  text: |
    bits: 2
"""
    assert line_numbers(text, "yaml") == {
        ("base",): 1,
        ("base", "bits"): 2,
        ("base", "symmetric"): 3,
        ("op",): 5,
        ("op", "Conv"): 6,
        ("op", "Conv", "weight"): 7,
        ("op", "Conv", "weight", "bits"): 9,
        ("op", "Conv", "weight", "symmetric"): 3,
        ("skip",): 10,
        ("skip", "stem.conv"): 11,
        ("skip", "head: *"): 12,
        ("fuse",): 14,
        ("fuse", "Conv"): 14,
        ("fuse", "Relu"): 14,
        ("fuse", "Add"): 15,
        ("rules",): 16,
        ("rules", "0"): 17,
        ("rules", "0", "name"): 17,
        ("rules", "0", "text"): 18,
    }


def test_yaml_that_holds_itself_ends() -> None:
    assert line_numbers("a: &x\n  b: *x\n", "yaml") == {("a",): 1, ("a", "b"): 2}


@pytest.mark.parametrize("kind", ["toml", "yaml"])
def test_empty_files_have_no_lines(kind: Any) -> None:
    assert line_numbers("# nothing\n", kind) == {}


def test_json_with_tabs_long_keys_and_a_colon_on_the_next_line() -> None:
    key = "x" * 2000
    text = (
        '{\n\t"skip"\n\t: ["a\\u00e9", 1,\n\t\t"b\\"]"],\n\t"' + key + '": {"y": null, "\\ud83d\\ude00": [{"z": []}]}}'
    )
    json.loads(text)
    assert line_numbers(text, "json") == {
        ("skip",): 2,
        ("skip", "aé"): 3,
        ("skip", 'b"]'): 4,
        (key,): 5,
        (key, "y"): 5,
        (key, "😀"): 5,
        (key, "😀", "0"): 5,
        (key, "😀", "0", "z"): 5,
    }


# ---- any document ----------------------------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=6)
SCALARS = st.one_of(st.booleans(), st.integers(-9, 9), WORDS)
DOCUMENTS = st.recursive(
    st.dictionaries(WORDS, st.one_of(SCALARS, st.lists(SCALARS, max_size=3)), max_size=4),
    lambda tables: st.dictionaries(
        WORDS, st.one_of(SCALARS, st.lists(st.one_of(WORDS, tables), max_size=3), tables), max_size=4
    ),
    max_leaves=12,
)


def paths_of(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """Every path that must have a line -> the word that stands in it, "" for a table of a list."""
    found: dict[tuple[str, ...], str] = {}
    if isinstance(value, dict):
        for key, inner in value.items():
            found[(*path, key)] = key
            found.update(paths_of(inner, (*path, key)))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, str):
                found.setdefault((*path, item), item)
            elif isinstance(item, dict):
                found[(*path, str(number))] = ""
                found.update(paths_of(item, (*path, str(number))))
    return found


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, st.sampled_from([None, 0, 2, "\t"]))
def test_json_lines_of_any_document(document: dict[str, Any], indent: Any) -> None:
    text = json.dumps(document, indent=indent)
    lines, wanted = line_numbers(text, "json"), paths_of(document)
    assert lines.keys() == wanted.keys()
    for path, line in lines.items():
        assert not wanted[path] or json.dumps(wanted[path]) in text.split("\n")[line - 1]


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, st.sampled_from([True, False, None]))
def test_yaml_lines_of_any_document(document: dict[str, Any], flow: bool | None) -> None:
    text = yaml.safe_dump(document, default_flow_style=flow, width=10_000, allow_unicode=True)
    lines, wanted = line_numbers(text, "yaml"), paths_of(document)
    assert lines.keys() == wanted.keys()
    for path, line in lines.items():
        word = wanted[path]
        if word.isalnum():  # others are quoted or escaped
            assert word in text.split("\n")[line - 1]


def toml_of(table: dict[str, Any], path: tuple[str, ...], text: list[str], wanted: dict[tuple[str, ...], int]) -> None:
    """Write a table line by line, and note the line of everything."""
    later = []
    for key, value in table.items():
        if isinstance(value, dict):
            later.append((key, value))
            continue
        text.append(f"# [{quoted(key)}]")
        for inner in paths_of({key: value}):
            wanted.setdefault((*path, *inner), len(text) + 1)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            text.append(f"{quoted(key)} = [ # [")
            for item in value:
                text.append(f"  {inline(item)}, # ]")
                if wanted[(*path, key, item)] == wanted[(*path, key)]:  # its first line
                    wanted[(*path, key, item)] = len(text)
            text.append("]")
        else:
            text.append(f"{quoted(key)} = {inline(value)}")
    for key, value in later:
        text.append(f"[ {' . '.join(map(quoted, (*path, key)))} ] # [[x]]")
        for length in range(1, len(path) + 2):
            wanted.setdefault((*path, key)[:length], len(text))
        toml_of(value, (*path, key), text, wanted)


def quoted(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)


def inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)} = {inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return quoted(value) if isinstance(value, str) else json.dumps(value)


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS)
def test_toml_lines_of_any_document(document: dict[str, Any]) -> None:
    text: list[str] = []
    wanted: dict[tuple[str, ...], int] = {}
    toml_of(document, (), text, wanted)
    assert tomllib.loads("\n".join(text)) == document
    assert line_numbers("\n".join(text), "toml") == wanted
