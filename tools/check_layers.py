"""Checks who imports whom in onnxq: prints each wrong import with its line and what is allowed, and exits with 1.

The tables below are the architecture (docs/architecture.md draws them); every import statement counts, also one inside
a function or under TYPE_CHECKING. Usage: python tools/check_layers.py [folder that holds the onnxq package]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "onnxq"
ROOT = "__init__"  # the unit of onnxq/__init__.py

FOR_EVERYONE = frozenset(
    {"errors", "registry", "temporary", "escapes", "files", "json_file", "machine", "plugins", "user_code", "version"}
)

MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "registry": frozenset(),
    "version": frozenset(),
    "moved": frozenset(),
    "locks": frozenset(),
    "temporary": frozenset({"locks"}),
    "escapes": frozenset(),
    "files": frozenset(),
    "json_file": frozenset(),
    "machine": frozenset(),
    "plugins": frozenset(),
    "distributed": frozenset(),
    "chart": frozenset(),
    "user_code": frozenset(),
    "switch": frozenset({"locks"}),
    "output_folder": frozenset({"locks", "switch"}),
    "types": frozenset(),
    "match": frozenset(),
    "numerics": frozenset({"types"}),
    "observers": frozenset({"types", "numerics"}),
    "graph": frozenset({"types"}),
    "passes": frozenset({"graph", "match"}),
    "strip": frozenset({"types", "graph", "numerics", "passes"}),
    "runtime": frozenset({"types", "graph", "numerics", "observers"}),
    "place": frozenset({"types", "graph", "match"}),
    "calibrate": frozenset({"types", "graph", "runtime", "numerics", "observers"}),
    "refine": frozenset({"types", "graph"}),
    "emit": frozenset({"types", "graph", "numerics"}),
    "lint": frozenset({"types", "graph"}),
    "torchnet": frozenset({"types", "graph", "numerics"}),
    "ptq": frozenset({"types", "graph", "numerics", "observers", "runtime", "emit"}),
    "ptq.reconstruction": frozenset({"types", "graph", "numerics", "runtime", "torchnet", "ptq"}),
    "targets": frozenset({"types", "graph", "numerics", "observers", "emit", "refine", "lint", "ptq"}),
    "verify": frozenset({"types", "graph", "numerics", "runtime", "place", "lint"}),
}
"""Unit (a package or module directly under onnxq, or one of SUBUNITS) -> the units it may import besides itself and
FOR_EVERYONE."""

SUBUNITS = {
    "ptq/reconstruction": "ptq.reconstruction",
    "ptq/search": "ptq.search",
    "targets/amd/dialect": "targets.dialects",
    "targets/sophgo/dialect": "targets.dialects",
}
"""Folders inside a package that stand in another layer than the package."""

MAY_IMPORT_ALL = frozenset(
    {
        ROOT,
        "__main__",
        "pipeline",
        "session",
        "config",
        "cli",
        "compat",
        "demo",
        "qat",
        "ptq.search",
        "mixed_precision",
        "diagnose",
        "targets.dialects",
    }
)

ONLY_IN: dict[str, frozenset[str]] = {
    "torch": frozenset({"torchnet", "qat", "ptq.reconstruction", "distributed"}),
    "onnx_graphsurgeon": frozenset({"graph"}),
    "onnxruntime": frozenset({"runtime", "verify"}),
}
"""Library -> the only units that may import it."""


@dataclass(frozen=True)
class Import:
    """One imported module, by its absolute dotted name, and the line that imports it."""

    module: str
    line: int


def check_tree(folder: Path) -> list[str]:
    """Return one line of text for each wrong import of the package in `folder`, in the order of the files."""
    package = folder / PACKAGE
    units = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    findings = []
    for path in sorted(package.rglob("*.py")):
        shown = path.relative_to(folder).as_posix()
        unit = unit_of(path.relative_to(package).as_posix().removesuffix(".py"))
        if unit not in MAY_IMPORT and unit not in MAY_IMPORT_ALL:
            findings.append(f"{shown}:1: '{unit}' is in no table; add it to MAY_IMPORT in tools/check_layers.py")
            continue
        for found in imports_of(path, folder, units):
            problem = problem_of(unit, found.module)
            if problem:
                findings.append(f"{shown}:{found.line}: {problem}")
    return findings


def unit_of(path: str) -> str:
    """The unit of a module, by its path below the package."""
    for folder, unit in SUBUNITS.items():
        if path == folder or path.startswith(f"{folder}/"):
            return unit
    return path.partition("/")[0]


def imports_of(path: Path, folder: Path, units: set[str]) -> Iterator[Import]:
    """Yield what a file imports, by absolute name; `from onnxq import graph` counts as onnxq.graph."""
    home = path.relative_to(folder).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = home[: len(home) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module != PACKAGE:
                yield Import(module, node.lineno)
                continue
            for alias in node.names:
                yield Import(f"{PACKAGE}.{alias.name}" if alias.name in units else PACKAGE, node.lineno)


def problem_of(unit: str, module: str) -> str | None:
    """Say why `unit` may not import `module`, or return None when it may."""
    top, _, rest = module.partition(".")
    if top in ONLY_IN and unit not in ONLY_IN[top]:
        homes = ", ".join(sorted(ONLY_IN[top]))
        return f"'{unit}' imports {module}; only these may: {homes}. Call a function of theirs instead"
    if top != PACKAGE or unit in MAY_IMPORT_ALL:
        return None
    target = unit_of(rest.replace(".", "/")) if rest else ROOT
    allowed = MAY_IMPORT[unit] | FOR_EVERYONE | {unit}
    if target in allowed:
        return None
    names = ", ".join(f"{PACKAGE}.{name}" for name in sorted(allowed))
    return f"'{unit}' imports {module}; allowed: {names}. Take the value as an argument, or move the code to its layer"


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    if not (folder / PACKAGE).is_dir():
        print(f"there is no package '{PACKAGE}' in {folder}; give the folder that holds it", file=sys.stderr)
        return 2
    findings = check_tree(folder)
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} wrong import(s)")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
