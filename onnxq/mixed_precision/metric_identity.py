"""What a metric of the user's is known by in the cache of scores: its source, and that of the modules it imports.

Imports are followed as they are written, also those inside of functions, to files beside the metric's module and in the
current folder. Installed packages, modules that are imported by a computed name, and files that a metric reads are not
looked at.
"""

from __future__ import annotations

import ast
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any


def sources_of(metric: Callable[..., Any]) -> list[str]:
    """Texts that change whenever the metric's own code or that of a module beside it does."""
    try:
        own = inspect.getsource(metric)
    except (OSError, TypeError):  # made while the program runs
        own = repr(metric)
    module = sys.modules.get(getattr(metric, "__module__", None) or "")
    place = getattr(module, "__file__", None)
    if place is None or not Path(place).is_file():
        return [own]
    file = Path(place).resolve()
    if _is_installed(file):
        return [own]
    roots = list(dict.fromkeys((_top(file), Path.cwd().resolve())))
    return [own, *(text for path in _followed(file, roots) for text in (path.name, path.read_text(errors="replace")))]


def _is_installed(file: Path) -> bool:
    paths = sysconfig.get_paths()
    return any(file.is_relative_to(Path(paths[name]).resolve()) for name in ("stdlib", "purelib", "platlib"))


def _top(file: Path) -> Path:
    """The folder that a module is imported from: above all packages that it is part of."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _followed(first: Path, roots: Sequence[Path]) -> list[Path]:
    """A file and all others that it imports, directly or by way of others, in a fixed order."""
    found, new = {first}, [first]
    while new:
        file = new.pop()
        beside = {path for path in _imported(file, roots) if not _is_installed(path)} - found
        found |= beside
        new += beside
    return sorted(found)


def _imported(file: Path, roots: Sequence[Path]) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # not what runs, or the metric would have failed
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(roots, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            above = [file.parents[node.level - 1]] if 0 < node.level <= len(file.parents) else roots
            for alias in node.names:
                yield from _files(above, [*(node.module or "").split("."), alias.name])


def _files(folders: Sequence[Path], names: Sequence[str]) -> Iterator[Path]:
    """The files that Python runs for a dotted name, in the first of the folders that has any."""
    names = [name for name in names if name]
    if names[:1] == ["onnxq"]:
        return  # it may lie in the current folder, and is no part of a metric
    for folder in folders:
        place, found = folder, []
        for name in names:
            found += [path for path in (place / f"{name}.py", place / name / "__init__.py") if path.is_file()]
            place /= name
        if found:
            yield from (path.resolve() for path in found)
            return
