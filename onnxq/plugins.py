"""The user's own code that registers backends, passes, observers, emitters, operators or fake-quantizers.

It is a file that is named, or an installed package that names a module of its own under the entry point group
`onnxq.plugins`; such a module is imported as soon as anything registered is looked for.
"""

from __future__ import annotations

import functools
import importlib.metadata
import sys
import traceback
from pathlib import Path
from types import ModuleType

from onnxq.errors import ConfigError, OnnxqError


def run_file(path: Path, what: str) -> ModuleType:
    """Run a Python file and return its module; any error inside becomes a ConfigError with its line.

    `what` says in errors what kind of file it is. The import system is not involved: it would leave compiled files
    beside the user's.
    """
    if not path.is_file():
        raise ConfigError(f"no {what} file at {path}")
    module = ModuleType(f"onnxq_{what.replace(' ', '_')}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except OnnxqError as error:
        raise ConfigError(f"{what} {path}: {error}") from error
    except (Exception, SystemExit) as error:  # whatever foreign code raises is that file's fault, not onnxq's
        raise ConfigError(f"{what} {path}{_line_in(path, error)}: {type(error).__name__}: {error}") from error
    return module


GROUP = "onnxq.plugins"


@functools.cache
def load_installed() -> None:
    """Import the modules that installed packages name, once."""
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: entry.name):
        owner = "" if entry.dist is None else f" of package {entry.dist.name}"
        try:
            entry.load()
        except (Exception, SystemExit) as error:  # whatever foreign code raises is that package's fault
            raise ConfigError(
                f"plugin '{entry.name}'{owner} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}. "
                "Repair or uninstall it"
            ) from error


def _line_in(path: Path, error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""
