"""The command as a process: entry points, quick start, pipes and terminals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import onnxq


def process(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onnxq", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


def test_version_is_that_of_the_package() -> None:
    result = process("--version")
    assert (result.returncode, result.stdout) == (0, f"onnxq {onnxq.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["list", "backends"], ["list", "passes"], ["list", "observers"]])
def test_what_runs_no_model_loads_neither_onnxruntime_nor_torch(arguments: list[str]) -> None:
    program = (
        "import sys, atexit, onnxq.cli\n"
        "atexit.register(lambda: print(*sorted({'torch', 'onnxruntime'} & set(sys.modules)), file=sys.stderr))\n"
        f"sys.argv = ['onnxq', *{arguments!r}]\n"
        "onnxq.cli.main()\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr.strip() == ""


def test_errors_go_to_stderr_with_their_exit_code(tmp_path: Path) -> None:
    result = process("inspect", tmp_path / "missing.onnx")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"error: no model file at {tmp_path / 'missing.onnx'}\n"


def test_a_reader_that_stops_early_is_no_error(model: Path) -> None:
    command = f"{sys.executable} -m onnxq place {model} -b onnxruntime | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.stdout.startswith("plan for onnxruntime")
    assert "Traceback" not in result.stderr
    assert "rror" not in result.stderr


def test_names_outside_the_encoding_are_escaped(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])] for name in ("größe", "[bold]:smile:")]
    node = helper.make_node("Relu", ["größe"], ["[bold]:smile:"])
    save(helper.make_model(helper.make_graph([node], "g", *ports), ir_version=10), tmp_path / "names.onnx")
    result = process("inspect", tmp_path / "names.onnx", env={"PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0, result.stderr
    assert "gr\\xf6\\xdfe" in result.stdout
    assert "[bold]:smile:" in result.stdout
