"""Modules that were moved: their old names go on working for one version, with a DeprecationWarning."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

MOVED = {
    "onnxq.backends": "onnxq.targets",
    "onnxq.bits": "onnxq.mixed_precision",
    "onnxq.borders": "onnxq.session.model_io",
    "onnxq.compat.sophgo": "onnxq.targets.sophgo.dialect",
    "onnxq.compat.vitis": "onnxq.targets.amd.dialect",
    "onnxq.deliver": "onnxq.pipeline.artifacts",
    "onnxq.equalize": "onnxq.ptq.equalization",
    "onnxq.equalize.freedom": "onnxq.ptq.equalization.scalable_channels",
    "onnxq.improve": "onnxq.ptq.search",
    "onnxq.improvement": "onnxq.ptq.method",
    "onnxq.qat.settings": "onnxq.config.training",
    "onnxq.ranks": "onnxq.distributed",
    "onnxq.reconstruct": "onnxq.ptq.reconstruction",
    "onnxq.report": "onnxq.pipeline.report",
    "onnxq.types.control": "onnxq.types.overrides",
    "onnxq.verify.lint": "onnxq.lint.limits",
    "onnxq.verify.rules": "onnxq.lint.rules",
}


class _Moved(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module by its old name and gives the one that it has become."""

    def __init__(self) -> None:
        self._own: dict[str, importlib.machinery.ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        new = MOVED[spec.name]
        warnings.warn(f"{spec.name} is now {new}", DeprecationWarning, stacklevel=2)
        found = importlib.import_module(new)
        self._own[spec.name] = found.__spec__
        return found

    def exec_module(self, module: ModuleType) -> None:
        """It was executed under its own name; the import system has put the old one's spec into it meanwhile."""
        assert module.__spec__ is not None
        module.__spec__ = self._own.pop(module.__spec__.name)


def find_moved_modules() -> None:
    """Let imports of old names succeed."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
