"""Models whose names speak to the terminal: every command shows them as escapes, and no line is forged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

IMAGE = "x\x1b]0;title\x07\n\rerror: forged\x9b2J\u202e\u2066\u200f\x7f"
WEIGHT, RESULT, NODE = "w\nerror: weight\x1b[2J", "y\x1b[1m\nwarning: result", "n\nwarning: node\u202e"
FORBIDDEN = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u200e\u200f\u2028\u202e\u2066"} - {"\n"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "model.onnx"
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32), WEIGHT)
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in ((IMAGE, [1, 3, 8, 8]), (RESULT, [1, 4, 6, 6]))
    ]
    node = helper.make_node("Conv", [IMAGE, WEIGHT], [RESULT], name=NODE, kernel_shape=[3, 3])
    graph = helper.make_graph([node], "g", *ports, [weight])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    model.producer_name = "p\x1b[5m"
    model.metadata_props.add(key="k\x1b]8;;http://x\x07", value="v\x1b[1A\nerror: metadata")
    save(model, path)
    return path


@pytest.fixture(scope="module")
def quantized(run: Any, hostile: Path) -> Path:
    out = hostile.parent / "out"
    assert run("quantize", hostile, "-b", "onnxruntime", "--random", 2, "-o", out, "-q").exit_code == 0
    return out


@pytest.fixture(scope="module")
def other(run: Any, hostile: Path) -> Path:
    """A run in which every tensor has another quantizer."""
    out = hostile.parent / "other"
    assert run("quantize", hostile, "-b", "tensorrt", "--random", 3, "-o", out, "-q").exit_code == 0
    return out


COMMANDS = [
    "inspect MODEL",
    "place MODEL -b onnxruntime",
    "quantize MODEL -b onnxruntime --random 2 -o NEW",
    "calibrate MODEL -b onnxruntime --random 2 -o NEW",
    "explain OUT *",
    "explain OUT nobody",
    "compare MODEL OUT --random 2",
    "evaluate MODEL OUT -d DATA",
    "diff OUT OTHER",
    "diff OUT OTHER --all",
    "diff OUT OTHER --json",
    "sensitivity MODEL -b onnxruntime --random 2",
    "lint OUT/model.onnx -b tensorrt",
    "simulate MODEL --plan OUT --random 2 -o NEW",
    "emit MODEL --plan OUT --qparams OUT -o NEW --json",
    "place MODEL -b onnxruntime --skip nobody",
    "inspect MODEL --json",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_lets_a_name_speak_to_the_terminal(
    command: str, run: Any, hostile: Path, quantized: Path, other: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "data.npz", np.zeros((2, 3, 8, 8), np.float32))
    places = {
        "MODEL": str(hostile),
        "DATA": str(tmp_path / "data.npz"),
        "OUT": str(quantized),
        "OTHER": str(other),
        "NEW": str(tmp_path / "new"),
    }
    words = [places.get(word, word.replace("OUT/", f"{quantized}/")) for word in command.split()]
    result = run(*words)
    assert result.exit_code in (0, 1, 2)
    assert result.stdout + result.stderr
    for text in (result.stdout, result.stderr):
        assert not FORBIDDEN & set(text)
        for line in text.splitlines():
            assert not line.startswith(("error: forged", "error: weight", "warning: result", "warning: node"))
    if "--json" in words:
        assert result.stdout.isascii()
        json.loads(result.stdout)


@pytest.mark.parametrize(
    "words",
    [
        ["ins\x1b[31mpect"],
        ["inspect", "--j\x1b[31m"],
        ["inspect", "no\x1b[31m\nerror: forged.onnx"],
        ["quantize", "m.onnx", "-o", "x", "-b", "no\x1b[31m\nerror: forged"],
        ["list", "back\x1b[31mends"],
    ],
)
def test_arguments_are_quoted_with_escapes(words: list[str], run: Any) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert not FORBIDDEN & set(result.stderr)
    assert "\nerror: forged" not in result.stderr


def test_lint_says_how_many_findings_there_are_even_when_quiet(run: Any, finished: Path) -> None:
    result = run("lint", finished / "model.onnx", "-b", "tensorrt", "-q")
    assert result.exit_code == 1
    assert "findings: tensorrt would not take the model as it is" in result.stderr
    assert "zero-point-zero" in result.stdout


def shell(command: str, **places: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **{name: str(path) for name, path in places.items()}, "PYTHON": sys.executable}
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
def test_closed_output_goes_nowhere(closed: str, model: Path) -> None:
    result = shell(f'"$PYTHON" -m onnxq inspect "$MODEL" {closed}', MODEL=model)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_output_that_cannot_be_written_is_an_error(model: Path) -> None:
    result = shell('"$PYTHON" -m onnxq inspect "$MODEL" --json >/dev/full', MODEL=model)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
