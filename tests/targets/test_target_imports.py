"""A vendor's folder can be read alone: what it shares with other makers' targets stands outside of `onnxq.targets`."""

from __future__ import annotations

import ast
from pathlib import Path

import onnxq.targets

FOLDER = Path(onnxq.targets.__file__).parent
PREFIX = "onnxq.targets."


def imported_vendors(path: Path) -> set[str]:
    """The vendors whose modules a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    modules = {name.removeprefix(PREFIX).partition(".")[0] for name in names if name.startswith(PREFIX)}
    return {name for name in modules if (FOLDER / name).is_dir()}


def test_a_vendor_imports_its_own_folder_only() -> None:
    files = [path for path in FOLDER.rglob("*.py") if path.parent != FOLDER]
    assert len(files) > 50
    vendors = {path: path.relative_to(FOLDER).parts[0] for path in files}
    wrong = {path: imported_vendors(path) - {vendor} for path, vendor in vendors.items()}
    assert {path: others for path, others in wrong.items() if others} == {}
