"""Plans and parameters that somebody has edited, or that are something else: an error with file and key, no files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onnxq.cli.artifacts import read_plan, read_qparams
from onnxq.errors import OnnxqError
from onnxq.pipeline.delivered import model_in

Edit = dict[tuple[str, ...], Any]


def edited(source: Path, target: Path, edits: Edit) -> Path:
    document = json.loads(source.read_text())
    for path, value in edits.items():
        table = document
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = value
    target.write_text(json.dumps(document).replace('"HUGE"', "1" + "0" * 400))
    return target


def message_of(read: Any, path: Path) -> str:
    with pytest.raises(OnnxqError) as caught:
        read(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


IMAGE = ("tensors", "image")
WRONG_IN_PLAN: dict[str, tuple[Edit, str]] = {
    "tensors is a list": ({("tensors",): []}, "tensors: must be a table of keys and values (got [])"),
    "an entry is a number": ({IMAGE: 5}, "tensors.image: must be a table of keys and values (got 5)"),
    "a name with dots": (
        {("tensors", "stem.conv.weight", "spec"): "int8"},
        "tensors['stem.conv.weight'].spec: must be a table of keys and values (got 'int8')",
    ),
    "dtype is a list": ({(*IMAGE, "spec", "dtype"): ["int8"]}, "tensors.image.spec.dtype: must be text"),
    "edges of three": ({(*IMAGE, "edges"): [["stem.conv", 0, 1]]}, "tensors.image.edges[0]"),
    "a negative port": ({(*IMAGE, "edges"): [["stem.conv", -1]]}, "tensors.image.edges[0][1]: must be 0 or more"),
    "a port beyond all": ({(*IMAGE, "edges"): [["stem.conv", "HUGE"]]}, "tensors.image.edges[0][1]"),
    "why is a list": ({(*IMAGE, "why"): []}, "tensors.image.why: must be text (got [])"),
    "a reason is a number": ({("nodes", "quantized", "stem.conv"): 5}, "nodes.quantized['stem.conv']: must be text"),
    "nodes is text": ({("nodes",): "all"}, "nodes: must be a table of keys and values (got 'all')"),
    "notes are numbers": ({("notes",): [1]}, "notes[0]: must be text (got 1)"),
    "config is null": ({("config",): None}, "config: must be a table of keys and values (got None)"),
    "backend is a number": ({("backend",): 5}, "backend: must be text (got 5)"),
    "version is true": ({("version",): True}, '"version" is True'),
}


@pytest.mark.parametrize(("edits", "message"), WRONG_IN_PLAN.values(), ids=WRONG_IN_PLAN)
def test_a_value_of_the_wrong_kind_in_a_plan_is_named(
    edits: Edit, message: str, finished: Path, tmp_path: Path
) -> None:
    path = edited(finished / "plan.json", tmp_path / "edited.json", edits)
    said = message_of(read_plan, path)
    assert said.startswith(f"{path}: ")
    assert message in said


WRONG_IN_PARAMETERS: dict[str, tuple[Edit, str]] = {
    "tensors is a number": ({("tensors",): 5}, "tensors: must be a table of keys and values (got 5)"),
    "an entry is text": ({IMAGE: "x"}, "tensors.image: must be a table"),
    "a zero point of 2^40": ({(*IMAGE, "zero_point"): 2**40}, "tensor 'image': zero points are whole numbers of 32"),
    "a zero point of 2^70": ({(*IMAGE, "zero_point"): 2**70}, "tensor 'image'"),
    "a zero point outside": ({(*IMAGE, "zero_point"): -1}, "tensor 'image': zero points must lie in [0, 255]"),
    "half a zero point": ({(*IMAGE, "zero_point"): 0.5}, "tensor 'image': zero points are whole numbers"),
    "a zero point in words": ({(*IMAGE, "zero_point"): "0"}, "tensor 'image': scales and zero points are numbers"),
    "a scale of 0": ({(*IMAGE, "scale"): 0}, "tensor 'image': scales must be finite and greater than zero"),
    "a negative scale": ({(*IMAGE, "scale"): -0.1}, "tensor 'image': scales must be finite and greater than zero"),
    "a scale beyond float32": ({(*IMAGE, "scale"): 1e300}, "tensor 'image': scales must be finite"),
    "a scale of 400 digits": ({(*IMAGE, "scale"): "HUGE"}, "tensor 'image'"),
    "a subnormal scale": ({(*IMAGE, "scale"): 1e-40}, "tensor 'image': scales must be 1.175e-38 or more, got 1e-40"),
    "a scale that is null": ({(*IMAGE, "scale"): None}, "tensor 'image': scales and zero points are numbers"),
    "a ragged scale": ({(*IMAGE, "scale"): [[1.0], [1.0, 2.0]]}, "tensor 'image'"),
    "bytes without type": ({(*IMAGE, "scale"): {"base64": ""}}, "tensor 'image': the key 'dtype' is missing"),
    "a shape beyond memory": (
        {(*IMAGE, "scale"): {"dtype": "float32", "shape": [10**15], "base64": "AACAPw=="}},
        "tensor 'image'",
    ),
    "objects as integers": (
        {("integer_weights",): {"stem.conv.weight": {"dtype": "O", "values": [1]}}},
        "tensor 'stem.conv.weight': integer weights are stored as int8",
    ),
    "integers that do not fit": (
        {("integer_weights",): {"stem.conv.weight": {"dtype": "int8", "values": [300]}}},
        "tensor 'stem.conv.weight': integer weights must be whole numbers that int8 can hold",
    ),
}


@pytest.mark.parametrize(("edits", "message"), WRONG_IN_PARAMETERS.values(), ids=WRONG_IN_PARAMETERS)
def test_a_wrong_value_in_a_table_of_parameters_is_named_with_its_tensor(
    edits: Edit, message: str, finished: Path, tmp_path: Path
) -> None:
    path = edited(finished / "qparams.json", tmp_path / "edited.json", edits)
    said = message_of(read_qparams, path)
    assert said.startswith(f"{path}: ")
    assert message in said


TEXTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is not readable JSON"),
    "too deep for the parser": (b'{"a":' + b"[" * 100_000, "more than 64 levels"),
    "deeper than anything of ours": (b'{"a":' + b"[" * 70 + b"]" * 70 + b"}", "more than 64 levels"),
    "a list": (b"[]", "holds a JSON list"),
    "a number": (b"5", "holds a JSON int"),
    "a key twice": (b'{"format": 1, "format": 2}', "the key 'format' stands twice"),
    "not a number": (b'{"format": NaN}', "NaN is no number in JSON"),
    "Latin-1": (b'{"format": "\xe9"}', "is no text in UTF-8"),
    "5000 digits": (b'{"version": ' + b"9" * 5000 + b"}", "is not readable JSON"),
}


@pytest.mark.parametrize("read", [read_plan, read_qparams])
@pytest.mark.parametrize(("text", "message"), TEXTS.values(), ids=TEXTS)
def test_what_is_no_json_object_is_refused_with_the_file(text: bytes, message: str, read: Any, tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    path.write_bytes(text)
    said = message_of(read, path)
    assert str(path) in said
    assert message in said


@pytest.mark.parametrize("read", [read_plan, read_qparams])
def test_a_folder_in_the_place_of_the_file_is_said(read: Any, tmp_path: Path) -> None:
    (tmp_path / "plan.json").mkdir()
    (tmp_path / "qparams.json").mkdir()
    assert "is a folder" in message_of(read, tmp_path)


def test_the_mark_that_editors_put_in_front_of_a_text_is_taken(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b"\xef\xbb\xbf" + (finished / "plan.json").read_bytes())
    assert read_plan(path) == read_plan(finished)


@pytest.mark.parametrize("name", ['{"name": 5}', '{"name": "../elsewhere"}', "[]", '{"name": "a\\u0000b"}'])
def test_the_name_of_a_run_stays_inside_of_its_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(name)
    assert "config.json" in message_of(model_in, tmp_path)


NOT_TOGETHER: dict[str, tuple[Edit, Edit, str]] = {
    "parameters of a tensor that is not in the plan": (
        {},
        {("tensors", "nobody"): {"spec": {"dtype": "int8"}, "scale": 1.0, "zero_point": 0}},
        "the parameters have an entry for 'nobody'",
    ),
    "integers of a tensor that is not in the plan": (
        {},
        {("integer_weights",): {"nobody": {"dtype": "int8", "values": [1]}}},
        "the parameters have an entry for 'nobody'",
    ),
    "integers of an activation": (
        {},
        {("integer_weights",): {"image": {"dtype": "int8", "values": [1]}}},
        "'image' is no weight",
    ),
    "integers of another shape": (
        {},
        {("integer_weights",): {"stem.conv.weight": {"dtype": "int8", "values": [1]}}},
        "'stem.conv.weight' has shape [32, 1, 3, 3], its integers have [1]",
    ),
    "integers beyond the format": (
        {},
        {("integer_weights",): {"stem.conv.weight": {"dtype": "int16", "values": [[[[300] * 3] * 3]] * 32}}},
        "'stem.conv.weight' holds 300, outside of [",  # unsigned where kernels of signed ones saturate
    ),
    "tied to nobody": ({(*IMAGE, "tie"): "nobody"}, {}, "ties tensor 'image' to 'nobody'"),
    "tied in a circle": ({("tensors", "residual.relu.out", "tie"): "pool.out"}, {}, "is tied to 'residual.relu.out'"),
    "observed nowhere": ({(*IMAGE, "observe"): ["nobody"]}, {}, "the range of tensor 'image' from 'nobody'"),
    "derived from nobody": (
        {("tensors", "stem.conv_bias", "derive", "input"): "nobody"},
        {},
        "derives the scale of tensor 'stem.conv_bias' from 'nobody'",
    ),
    "inside of nobody": ({("nodes", "fused", "stem.relu"): "nobody"}, {}, "lets node 'stem.relu' run inside 'nobody'"),
}


@pytest.mark.parametrize(("plan", "qparams", "message"), NOT_TOGETHER.values(), ids=NOT_TOGETHER)
def test_what_does_not_fit_together_is_refused_and_nothing_is_written(
    plan: Edit, qparams: Edit, message: str, run: Any, model: Path, finished: Path, tmp_path: Path
) -> None:
    files = [edited(finished / name, tmp_path / name, edits) for name, edits in
             (("plan.json", plan), ("qparams.json", qparams))]  # fmt: skip
    out = tmp_path / "out"
    result = run("emit", model, "--plan", files[0], "--qparams", files[1], "-o", out)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not out.exists()
