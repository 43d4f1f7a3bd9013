"""The import table of tools/check_layers.py holds for the tree, and a wrong import does not slip through."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tools.check_layers import FOR_EVERYONE, MAY_IMPORT, check_names, check_table, main

REPOSITORY = Path(__file__).resolve().parent.parent
TOOL = REPOSITORY / "tools" / "check_layers.py"


def run_command(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), str(folder)], capture_output=True, text=True, check=False)


def run_check(folder: Path) -> subprocess.CompletedProcess[str]:
    """The same in this process."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", [str(TOOL), str(folder)])
        code = main()
    return subprocess.CompletedProcess([str(TOOL)], code, out.getvalue(), "")


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """A package with the folders that the planted imports need, and no wrong import."""
    for name in ("graph", "passes", "types", "runtime", "torchnet"):
        (tmp_path / "onnxq" / name).mkdir(parents=True)
        (tmp_path / "onnxq" / name / "__init__.py").write_text("")
    for name in ("__init__", "errors", "pipeline"):
        (tmp_path / "onnxq" / f"{name}.py").write_text("")
    return tmp_path


def test_the_tree_has_no_wrong_import() -> None:
    result = run_command(REPOSITORY)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_wrong_import_planted_in_a_copy_of_the_tree_is_found(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "onnxq", tmp_path / "onnxq", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "onnxq" / "types" / "planted.py").write_text("import json\n\nfrom onnxq.graph import io\n")
    result = run_command(tmp_path)
    assert result.returncode == 1
    planted = [line for line in result.stdout.splitlines() if "planted.py" in line]
    assert len(planted) == 1
    assert planted[0].startswith("onnxq/types/planted.py:3: 'types' imports onnxq.graph; allowed: ")
    everyone = (
        "errors escapes files glance json_file machine moved plugins progress registry temporary types user_code"
        " version warned"
    )
    assert ", ".join(f"onnxq.{unit}" for unit in everyone.split()) in planted[0]


@pytest.mark.parametrize(
    ("file", "code", "line"),
    [
        ("passes/wrong.py", "from onnxq import runtime\n", 1),
        ("passes/wrong.py", "def run() -> None:\n    import onnxq.runtime.session\n", 2),
        ("passes/wrong.py", "from ..runtime import session\n", 1),
        ("passes/wrong.py", "from .. import runtime\n", 1),
        ("passes/wrong.py", "import onnxq\n", 1),
        ("passes/wrong.py", "import onnx_graphsurgeon as gs\n", 1),
        ("errors.py", "from onnxq.types import spec\n", 1),
        ("pipeline.py", "import onnxruntime\n", 1),
        ("runtime/wrong.py", "from torch.nn import functional\n", 1),
    ],
)
def test_a_wrong_import_is_found_however_it_is_written(small_tree: Path, file: str, code: str, line: int) -> None:
    (small_tree / "onnxq" / file).write_text(code)
    result = run_check(small_tree)
    assert result.returncode == 1
    assert result.stdout.startswith(f"onnxq/{file}:{line}: ")
    assert "1 wrong import(s)" in result.stdout


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("passes/right.py", "from onnxq.graph import io\nfrom onnxq.errors import ModelError\nfrom . import base\n"),
        ("pipeline.py", "from onnxq import graph, passes\nfrom onnxq.runtime import session\n"),
        ("runtime/right.py", "import onnxruntime\nfrom ..graph import io\n"),
        ("torchnet/right.py", "import torch.nn\n"),
        ("graph/right.py", "import onnx_graphsurgeon\n"),
    ],
)
def test_an_allowed_import_passes(small_tree: Path, file: str, code: str) -> None:
    (small_tree / "onnxq" / file).write_text(code)
    result = run_check(small_tree)
    assert result.returncode == 0, result.stdout


def test_every_entry_of_the_table_stands_behind_what_it_may_import() -> None:
    assert check_table(MAY_IMPORT) == []
    assert set(MAY_IMPORT) >= FOR_EVERYONE


@pytest.mark.parametrize(
    "table",
    [
        {"a": frozenset({"b"}), "b": frozenset({"a"})},
        {"a": frozenset({"c"}), "b": frozenset({"a"}), "c": frozenset({"b"})},
        {"a": frozenset({"a"})},
        {"a": frozenset({"unknown"})},
    ],
)
def test_a_table_with_a_cycle_or_an_unknown_unit_is_wrong(table: dict[str, frozenset[str]]) -> None:
    assert len(check_table(table)) == 1


def test_a_package_that_is_in_no_table_is_named(small_tree: Path) -> None:
    (small_tree / "onnxq" / "novelty.py").write_text("")
    result = run_check(small_tree)
    assert result.returncode == 1
    assert "'novelty' is in no table" in result.stdout


# ---- names of targets ------------------------------------------------------------------------------------------------


@pytest.fixture
def named_tree(small_tree: Path) -> Path:
    """The package with two vendors: one with a target, a simulation and a dialect, one named like the library."""
    for name in ("acme", "onnxruntime", "academic"):
        (small_tree / "onnxq" / "targets" / name).mkdir(parents=True)
    (small_tree / "onnxq" / "targets" / "__init__.py").write_text("")
    (small_tree / "onnxq" / "targets" / "acme" / "backend.py").write_text(
        "BACKENDS.add('rocket', make())\nDIALECTS.add('acme_mq', make())\n"
        "@SIMULATIONS.register('soft_pool')\ndef f(): ...\n"
    )
    return small_tree


@pytest.mark.parametrize(
    ("code", "line", "name"),
    [
        ("x = 1\nif backend == 'rocket': ...\n", 2, "rocket"),
        ("x = 'rocket:fuel=low'\n", 1, "rocket"),
        ("x = f'{y} of a Rocket'\n", 1, "rocket"),
        ("import onnxq.targets.acme.backend\n", 1, "acme"),
        ("def f():\n    from onnxq.targets import acme\n", 2, "acme"),
        ("from onnxq.targets.onnxruntime import qlinear\n", 1, "onnxruntime"),
        ("class AcmeOption: ...\n", 1, "acme"),
        ("def read_acme_mq(path): ...\n", 1, "acme"),
        ("x = y.rocket\n", 1, "rocket"),
        ("f(acme_mq=1)\n", 1, "acme"),
        ("if 'soft_pool' in backend.simulations: ...\n", 1, "soft_pool"),
        ("x = backend.name == 'onnxruntime'\n", 1, "onnxruntime"),
        ("async def acme_mq(): ...\n", 1, "acme"),
        ("x = 'academic'\n", 1, "academic"),
        ("x = 'dpu_positions'\n", 1, "dpu"),
    ],
)
def test_code_that_names_a_target_is_found(named_tree: Path, code: str, line: int, name: str) -> None:
    (named_tree / "onnxq" / "passes" / "wrong.py").write_text(code)
    findings = check_names(named_tree)
    assert len(findings) == 1, findings
    assert findings[0].startswith(f"onnxq/passes/wrong.py:{line}: names '{name}', which belongs to a target")
    assert run_check(named_tree).returncode == 1


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("passes/right.py", '"""As the rocket of acme does."""\nx = 1  # acme\n"""Of a rocket."""\n'),
        ("passes/right.py", "x = 'rockets'\nsprocket = 'onnxruntime'\ny = 'an academic question'\nsoft_pool = 1\n"),
        ("targets/other.py", "x = 'rocket'\n"),
        ("compat/mqbench/right.py", "x = 'rocket'\n"),
        ("moved.py", "x = 'onnxq.targets.acme'\n"),
    ],
)
def test_words_and_docstrings_are_no_names(named_tree: Path, file: str, code: str) -> None:
    path = named_tree / "onnxq" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    assert check_names(named_tree) == []


def test_the_name_of_a_file_counts(named_tree: Path) -> None:
    (named_tree / "onnxq" / "passes" / "acme_rules.py").write_text("")
    assert check_names(named_tree)[0].startswith("onnxq/passes/acme_rules.py:1: names 'acme'")


@pytest.mark.parametrize(
    "code",
    [
        'def f(spec):\n    return spec.dtype == "int8"\n',
        'def f(spec):\n    return spec.dtype in ("fp16", "bf16")\n',
        'def f(spec):\n    return "nnie8" != spec.dtype\n',
        'def f(spec):\n    return spec.dtype.startswith("fp8")\n',
        'def f(spec):\n    return "fp8" in spec.dtype\n',
        'def f(spec):\n    return spec.dtype[:3] == "fp8"\n',
        'def f(spec):\n    return {"int4": 21}.get(spec.dtype, 10)\n',
        'def f(spec):\n    match spec.dtype:\n        case "uint8":\n            return 1\n',
        '\nWITHOUT_SCALE = ["fp16", "bf16"]\n',
        "\nfrom onnxq.numerics.formats.nnie import Nnie\n",
    ],
)
def test_a_branch_on_the_name_of_a_number_format_is_found(small_tree: Path, code: str) -> None:
    (small_tree / "onnxq" / "runtime" / "wrong.py").write_text(code)
    (small_tree / "onnxq" / "numerics").mkdir()
    result = run_check(small_tree)
    assert result.returncode == 1
    found = [line for line in result.stdout.splitlines() if "branch on the name of a number format" in line]
    assert [line.partition(": ")[0] for line in found] == [f"onnxq/runtime/wrong.py:{3 if 'case' in code else 2}"]


@pytest.mark.parametrize("folder", ["targets/vendor", "numerics/formats", "config", "compat"])
def test_names_of_formats_are_data_where_they_are_written_or_defined(small_tree: Path, folder: str) -> None:
    (small_tree / "onnxq" / folder).mkdir(parents=True)
    (small_tree / "onnxq" / folder / "right.py").write_text('WORDS = {"fp8_e4m3": "F8E4M3"}\n')
    (small_tree / "onnxq" / "runtime" / "right.py").write_text('KIND = dict(dtype="fp8_e4m3")\n')
    assert run_check(small_tree).returncode == 0


def test_the_check_knows_every_number_format_of_onnxq() -> None:
    from onnxq.types.number_format import number_formats
    from tools.check_layers import FORMATS

    own = {name for name, item in number_formats().items() if type(item).__module__.startswith("onnxq.")}
    assert own == FORMATS


@pytest.mark.parametrize(
    ("file", "code", "lines"),
    [
        ("runtime/code.py", "x: dict[str, Any] = {}\ndef f(x: Mapping[str, Any] | None) -> None: ...\n", [1, 2]),
        ("runtime/code.py", "def f() -> list[dict[str, Any]]:\n    Local = dict[str, Any]\n", [1, 2]),
        ("runtime/code.py", "Options = dict[str, Any]\nclass Held(dict[str, Any]): ...\nx: dict[int, Any] = {}\n", []),
        ("config/code.py", "x: dict[str, Any] = {}\n", []),
        ("json_file.py", "x: dict[str, Any] = {}\n", []),
    ],
)
def test_a_table_of_anything_is_found_unless_it_has_a_name(
    small_tree: Path, file: str, code: str, lines: list[int]
) -> None:
    (small_tree / "onnxq" / "config").mkdir()
    (small_tree / "onnxq" / file).write_text(code)
    result = run_check(small_tree)
    found = [line for line in result.stdout.splitlines() if "say JsonObject" in line]
    assert [line.partition(": ")[0] for line in found] == [f"onnxq/{file}:{line}" for line in lines]
    assert result.returncode == bool(lines)
