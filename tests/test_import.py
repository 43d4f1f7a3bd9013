"""`import onnxq` is quick: the heavy libraries load only when a function needs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cpu_time import spent

PROGRAM = "import sys, {module}; print(*sorted({{'torch', 'onnxruntime'}} & set(sys.modules)))"


@pytest.mark.parametrize(
    "module",
    [
        *("onnxq", "onnxq.types", "onnxq.demo", "onnxq.config"),
        *("onnxq.compat.read", "onnxq.compat.mqbench", "onnxq.targets.sophgo.dialect", "onnxq.targets.amd.dialect"),
    ],
)
def test_import_loads_neither_torch_nor_onnxruntime(module: str) -> None:
    program = PROGRAM.format(module=module)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == ""


def test_the_package_imports_what_is_asked_for() -> None:
    """Nothing but a few modules of its own; every public name all the same, and `onnxq.place` is the function."""
    program = (
        "import sys, onnxq; heavy = {'numpy', 'onnx', 'pydantic', 'typer', 'onnxq.graph'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import onnxq.place, onnxq.emit.simulate, onnxq.diagnose\n"
        "found = {name: getattr(onnxq, name) for name in onnxq.__all__}\n"
        "import types; stages = 'calibrate compare diagnose emit evaluate lint place prepare quantize refine'.split()\n"
        "stages += 'restore_layers search sensitivity simulate'.split()\n"
        "assert all(isinstance(found[name], types.FunctionType) for name in stages), found\n"
        "assert onnxq.compare.__name__ == 'compare_layers' and onnxq.graph.Graph is onnxq.Graph\n"
        "assert set(onnxq.__all__) <= set(dir(onnxq)) and not hasattr(onnxq, 'nothing_of_that_name')\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_list_of_commands_needs_none_of_them() -> None:
    """One command without a line among the summaries costs all that its options import."""
    program = (
        "import sys; sys.argv = ['onnxq', '--help']\n"
        "from onnxq.cli import run_here\n"
        "try:\n    run_here()\nexcept SystemExit as end:\n    assert not end.code\n"
        "loaded = [name for name in sys.modules if name.startswith(('onnxq.cli.commands.', 'onnxq.config', 'numpy'))]\n"
        "assert not loaded, loaded\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "huggingface" in result.stdout


@pytest.mark.parametrize("arguments", [["-c", "import onnxq"], ["-m", "onnxq", "--help"]], ids=["import", "help"])
def test_importing_and_help_cost_no_more_than_the_libraries_of_the_command_line(arguments: list[str]) -> None:
    """`import onnxq` once took three times this baseline, `onnxq --help` four times."""
    baseline = min(_cpu_seconds(["-c", "import typer.rich_utils, typer.main"]) for _ in range(3))
    assert min(_cpu_seconds(arguments) for _ in range(3)) < 2 * baseline


def _cpu_seconds(arguments: list[str]) -> float:
    before = spent()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    return spent() - before
