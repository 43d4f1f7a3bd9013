"""A target's file can be read alone: what it shares with other makers' targets stands in onnxq.types."""

from __future__ import annotations

import ast
from pathlib import Path

import onnxq.backends

FAMILIES = {
    "academic_nlp": {"academic"},
    "ryzenai": {"vitis"},
    "snpe": {"qnn"},
    "tensorrt_nlp": {"tensorrt"},
}
"""Targets that are made of another one of the same maker."""


def imported_targets(path: Path) -> set[str]:
    """The other target files that one imports."""
    prefix = "onnxq.backends."
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    modules = {name.removeprefix(prefix).partition(".")[0] for name in names if name.startswith(prefix)}
    return {name for name in modules if (path.parent / f"{name}.py").exists()}


def test_targets_import_only_their_own_family() -> None:
    files = [path for path in Path(onnxq.backends.__file__).parent.glob("*.py") if path.stem != "__init__"]
    found = {path.stem: imported_targets(path) for path in files}
    assert {name: others for name, others in found.items() if others} == FAMILIES
