"""Targets, one file of data each; a file from outside is loaded by its path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from onnxq.errors import ConfigError
from onnxq.registry import Registry
from onnxq.types import Backend

BACKENDS: Registry[Backend] = Registry("backend", "onnxq.backends")


def get_backend(backend: str | Backend) -> Backend:
    """A backend by name, by the path of a Python file that registers one, or as it is."""
    if isinstance(backend, Backend):
        return backend
    if backend.endswith(".py"):
        return load_backend(Path(backend))
    return BACKENDS.get(backend)


def load_backend(path: Path) -> Backend:
    """Run a Python file that registers a backend (`BACKENDS.add(...)`) and return that backend."""
    if not path.is_file():
        raise ConfigError(f"no backend file at {path}")
    before = set(BACKENDS.names())
    name = f"onnxq_backend_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    added = [n for n in BACKENDS.names() if n not in before]
    if len(added) == 1:
        return BACKENDS.get(added[0])
    if not added and path.stem in BACKENDS:  # loaded before in this process
        return BACKENDS.get(path.stem)
    raise ConfigError(
        f"{path} must register exactly one backend with onnxq.backends.BACKENDS.add(name, backend), "
        f"it registered {added or 'none'}"
    )
