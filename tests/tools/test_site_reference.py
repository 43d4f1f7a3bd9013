"""The Python reference of the site has every public name, and each has a docstring to show."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from pathlib import Path

import pytest

from tools.site.reference import PAGES, WHOLE_PACKAGES, ReferencePage, find, home, stage_reference

EVERY = [name for page in PAGES for name in page.names]


@pytest.mark.parametrize("package", WHOLE_PACKAGES)
def test_every_public_name_of_a_package_is_on_a_page(package: str) -> None:
    importlib.import_module(package)
    public = {f"{package}.{name}": getattr(sys.modules[package], name) for name in sys.modules[package].__all__}
    listed = {id(find(name)) for name in EVERY}
    assert [name for name, found in public.items() if id(found) not in listed] == []


def test_no_name_is_on_two_pages() -> None:
    homes = [home(name) for name in EVERY]
    assert [name for name in sorted(set(homes)) if homes.count(name) > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_has_a_docstring(page: ReferencePage) -> None:
    assert [name for name in page.names if not _docstring(name)] == []


def _docstring(path: str) -> str:
    found = find(path)
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        return _below_its_assignment(path)
    text = (found.__doc__ or "").strip()
    return "" if text.startswith(f"{found.__name__}(") else text  # what a dataclass writes by itself


def _below_its_assignment(path: str) -> str:
    """The text below the assignment of a value, in the module that makes it."""
    package, _, name = path.rpartition(".")
    module, name = _made_in(package, name)
    body = ast.parse(Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8")).body
    for node, behind in zip(body, [*body[1:], ast.Pass()], strict=True):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            said = behind.value if isinstance(behind, ast.Expr) else None
            return str(said.value) if isinstance(said, ast.Constant) and isinstance(said.value, str) else ""
    raise AssertionError(f"{path} is assigned nowhere")


def _made_in(module: str, name: str) -> tuple[str, str]:
    """Follow imports to the module that assigns the name."""
    for node in ast.walk(ast.parse(Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    importlib.import_module(node.module)
                    return _made_in(node.module, alias.name)
    return module, name


def test_pages_name_the_definition_and_show_the_name_that_users_import(tmp_path: Path) -> None:
    stage_reference(tmp_path)
    run = (tmp_path / "api" / "run.md").read_text()
    assert "::: onnxq.quantize.quantize\n    options:\n      heading: onnxq.quantize\n" in run
    index = (tmp_path / "api" / "index.md").read_text()
    assert "[`quantize`](run.md#onnxq.quantize.quantize)" in index
