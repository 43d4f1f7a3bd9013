"""Dialect: another tool whose configurations are read. A vendor's is registered in the `__init__.py` of its folder."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass

from onnxq.registry import Registry


@dataclass(frozen=True)
class TorchClasses:
    """Classes of a tool that stand for torch's layers: the package that holds them, and what stands behind their names.

    `newer` is the same pair in newer versions of the tool, which means the same.
    """

    package: str
    mark: str
    newer: tuple[str, str] | None = None


@dataclass(frozen=True)
class Dialect:
    """Another tool, as the command line and the reader of its files know it; registered under its option's name.

    tool       what the tool is called, in errors and tables
    module     the module with `translate(document, graph) -> Translation`, imported where it is needed
    variables  the variable of a Python file that holds the dictionary, the usual name first
    summary    what a file of it is, for the command line
    argument   what the option takes: a FILE, or a NAME_OR_FILE where the tool has configurations under names
    classes    its classes for torch's layers, which a configuration may name
    target     which names of targets -b takes, handed on to `translate`; empty where a configuration names the target
    example    what stands behind the option in an example of the command line, and the further options that it needs
    """

    tool: str
    module: str
    variables: tuple[str, ...]
    summary: str
    argument: str = "FILE"
    classes: TorchClasses | None = None
    target: str = ""
    example: str = ""

    @property
    def has_names(self) -> bool:
        """Whether a text that is no Python file is for `translate` to read: the name of a built-in configuration."""
        return self.argument != "FILE"


class Dialects(Registry[Dialect]):
    """Dialects by name. Only the folders of vendors are imported for them, not the modules inside."""

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            importlib.import_module("onnxq.compat.mqbench_dialect")
            for found in pkgutil.iter_modules(importlib.import_module("onnxq.targets").__path__, "onnxq.targets."):
                if found.ispkg:
                    importlib.import_module(found.name)


DIALECTS = Dialects("dialect", "onnxq.targets")
