"""Registered things are found by name without importing everything that is registered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onnxq.errors import ConfigError
from onnxq.passes import PASSES
from onnxq.registry import Registry, _modules_called
from onnxq.targets import BACKENDS

ONE_NAME = """
import sys
from onnxq.targets import get_backend
from onnxq.passes.base import PASSES
from onnxq.emit import file_names
backend = get_backend({name!r})
for one in backend.passes:
    PASSES.get(one)
file_names(backend, "model")
folders = {{module.split(".")[2] for module in sys.modules if module.startswith("onnxq.targets.")}}
assert {folder!r} in folders, folders
assert not folders & {{"sophgo", "amd", "tensorrt"}} - {{{folder!r}}}, folders
assert "onnxq.passes.relu6_to_relu" not in sys.modules
"""


@pytest.mark.parametrize(
    ("name", "folder"),
    [("onnxruntime", "onnxruntime"), ("tensorrt", "tensorrt"), ("vitis", "amd"), ("sophgo_bm1688", "sophgo")],
)
def test_a_target_brings_its_own_folder_and_no_other(name: str, folder: str) -> None:
    code = ONE_NAME.format(name=name, folder=folder)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_pass_is_called_like_its_file() -> None:
    assert [name for name in PASSES.names() if not _modules_called(name, "onnxq.passes")] == []


def test_a_target_is_called_like_a_file_or_folder() -> None:
    assert [name for name in BACKENDS.names() if not _modules_called(name, "onnxq.targets")] == []


def _package(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> str:
    package = folder / "vendors"
    for name, code in {"__init__": "", **files}.items():
        file = package / f"{name.replace('__in__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.split(".")[0] == "vendors"]:
        monkeypatch.delitem(sys.modules, name)
    return "vendors"


def test_names_that_no_file_has_are_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry: Registry[str] = Registry("chip")
    monkeypatch.setattr("onnxq.registry.CHIPS", registry, raising=False)
    add = "from onnxq.registry import CHIPS\nCHIPS.add({0!r}, {0!r})\n"
    package = _package(
        tmp_path,
        monkeypatch,
        acme__in__first=add.format("first"),
        acme__in__second=add.format("other name") + "CHIPS.add_alias('alias', 'first')\n",
        beta__in__third=add.format("third"),
    )
    registry._packages, registry._loaded = (package,), False
    assert registry.get("first") == "first"
    assert registry.get("other name") == "other name", "of the same folder"
    assert registry.name_of("alias") == "first"
    assert "vendors.beta.third" not in sys.modules
    assert "no such chip" not in registry
    assert registry.names() == ["first", "other name", "third"]
    with pytest.raises(ConfigError, match="Known: first, other name, third"):
        registry.get("no such chip")
