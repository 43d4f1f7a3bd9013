"""Old names of modules, functions and arguments: they go on working for one version, with a DeprecationWarning."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import ModuleType
from typing import Any, TypeVar, cast

MOVED = {
    "onnxq.backends": "onnxq.targets",
    "onnxq.bits": "onnxq.mixed_precision",
    "onnxq.bits.hold": "onnxq.mixed_precision.restore_layers",
    "onnxq.borders": "onnxq.session.model_io",
    "onnxq.compat.sophgo": "onnxq.targets.sophgo.dialect",
    "onnxq.compat.vitis": "onnxq.targets.amd.dialect",
    "onnxq.deliver": "onnxq.pipeline.artifacts",
    "onnxq.equalize": "onnxq.ptq.equalization",
    "onnxq.equalize.freedom": "onnxq.ptq.equalization.scalable_channels",
    "onnxq.improve": "onnxq.ptq.search",
    "onnxq.improvement": "onnxq.ptq.method",
    "onnxq.mixed_precision.costs": "onnxq.costs",
    "onnxq.qat.settings": "onnxq.config.training",
    "onnxq.ranks": "onnxq.distributed",
    "onnxq.reconstruct": "onnxq.ptq.reconstruction",
    "onnxq.refine.gptq_matrix": "onnxq.ptq.weights.gptq_matrix",
    "onnxq.report": "onnxq.pipeline.report",
    "onnxq.types.control": "onnxq.types.overrides",
    "onnxq.verify.lint": "onnxq.lint.limits",
    "onnxq.verify.rules": "onnxq.lint.rules",
}


def new_name(old: str) -> str | None:
    """Where a module is now, which may be one in a package that was moved; None for what was not."""
    package, rest = old, ""
    while package.startswith("onnxq."):
        if package in MOVED:
            return f"{MOVED[package]}{rest}"
        package, _, last = package.rpartition(".")
        rest = f".{last}{rest}"
    return None


class _Moved(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module by its old name and gives the one that it has become."""

    def __init__(self) -> None:
        self._own: dict[str, importlib.machinery.ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return None if new_name(fullname) is None else importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        new = new_name(spec.name)
        assert new is not None
        warnings.warn(f"{spec.name} is now {new}", DeprecationWarning, stacklevel=2)
        found = importlib.import_module(new)
        self._own[spec.name] = found.__spec__
        return found

    def exec_module(self, module: ModuleType) -> None:
        """It was executed under its own name; the import system has put the old one's spec into it meanwhile."""
        assert module.__spec__ is not None
        module.__spec__ = self._own.pop(module.__spec__.name)


def find_moved_modules() -> None:
    """Let imports of old names succeed; first of all finders, or modules of moved packages would be loaded twice."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Moved())


def old_property(name: str, new: str, value: Callable[[Any], Any]) -> property:
    """A property that was replaced, `name` with its class; `new` says by what."""

    def get(self: Any) -> Any:
        warnings.warn(f"{name} is now {new}", DeprecationWarning, stacklevel=2)
        return value(self)

    return property(get)


Function = TypeVar("Function", bound=Callable[..., Any])


def renamed_arguments(**names: str) -> Callable[[Function], Function]:
    """Let a function take arguments by their old names, old=new."""

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            for old, new in names.items():
                if old in given:
                    if new in given:
                        raise TypeError(f"{function.__name__}() has got {new} twice: as {old}, too")
                    text = f"{function.__name__}({old}=...) is now {function.__name__}({new}=...)"
                    warnings.warn(text, DeprecationWarning, stacklevel=2)
                    given[new] = given.pop(old)
            return function(*args, **given)

        return cast(Function, call)

    return decorate


def renamed_in(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a module some of whose names have changed, old -> new."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now called {names[name]}", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], names[name])

    return find
