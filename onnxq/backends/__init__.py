"""Targets, one file of data each; a file from outside is loaded by its path."""

from __future__ import annotations

import sys
from pathlib import Path

from onnxq.errors import ConfigError
from onnxq.plugins import run_file
from onnxq.registry import Registry
from onnxq.types import Backend

BACKENDS: Registry[Backend] = Registry("backend", "onnxq.backends")


def get_backend(backend: str | Backend) -> Backend:
    """A backend by name, by the path of a Python file that registers one, or as it is."""
    if isinstance(backend, Backend):
        return backend
    if not isinstance(backend, str):
        raise ConfigError(f"a backend is a name, the path of a file or a Backend, not a {type(backend).__name__}")
    if backend.endswith(".py"):
        return load_backend(Path(backend))
    return BACKENDS.get(backend)


def load_backend(path: Path) -> Backend:
    """Run a Python file that registers one backend (`BACKENDS.add(...)`) and return that backend.

    A file that was run before is run again, and what it registers replaces what it registered then.
    """
    earlier = sys.modules.get(f"onnxq_backend_{path.stem}")
    if earlier is not None and earlier.__file__ == str(path.resolve()):
        BACKENDS.forget(getattr(earlier, "registered_backend", None))
    before = set(BACKENDS.names())
    module = run_file(path.resolve(), "backend")
    added = [name for name in BACKENDS.names() if name not in before]
    if len(added) != 1:
        raise ConfigError(
            f"{path} must register exactly one backend with onnxq.backends.BACKENDS.add(name, backend), "
            f"it registered {', '.join(added) or 'none'}"
        )
    module.registered_backend = added[0]  # type: ignore[attr-defined]
    return BACKENDS.get(added[0])
