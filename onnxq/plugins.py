"""The user's own code that registers backends, passes, observers, emitters, operators or fake-quantizers.

It is a file or a folder that is named, or an installed package that names a module of its own under the entry point
group `onnxq.plugins`; such a module is imported as soon as anything registered is looked for.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from onnxq.errors import ConfigError, OnnxqError


def run_code(path: Path, what: str) -> ModuleType:
    """Run a Python file, or all modules of a folder: what a user names as one piece of code."""
    return run_folder(path, what) if path.is_dir() else run_file(path, what)


def run_file(path: Path, what: str) -> ModuleType:
    """Run a Python file and return its module; any error inside becomes a ConfigError with its line.

    `what` says in errors what kind of file it is. The import system is not involved: it would leave compiled files
    beside the user's.
    """
    if not path.is_file():
        raise ConfigError(f"no {what} file at {path}")
    module = ModuleType(module_name(path, what))
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    with _faults_of(path, what):
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module


def run_folder(path: Path, what: str) -> ModuleType:
    """Run all Python files of a folder as the modules of one package, and return that; errors are as for a file.

    The modules find one another by relative imports (`from .tables import ...`); what was run before is run anew.
    """
    path = path.resolve()
    package = ModuleType(module_name(path, what))
    package.__file__, package.__path__, package.__package__ = str(path / "__init__.py"), [str(path)], package.__name__
    for name in [name for name in sys.modules if name == package.__name__ or name.startswith(f"{package.__name__}.")]:
        del sys.modules[name]
    sys.modules[package.__name__] = package
    files = sorted(path.glob("[!.]*.py"), key=lambda file: (file.name != "__init__.py", file.name))
    importlib.invalidate_caches()
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with _faults_of(path, what):
            for file in files:
                if file.name == "__init__.py":
                    exec(compile(file.read_bytes(), str(file), "exec"), package.__dict__)
                else:
                    importlib.import_module(f"{package.__name__}.{file.stem}")
    finally:
        sys.dont_write_bytecode = writes
    return package


def module_name(path: Path, what: str) -> str:
    """The name under which the code at a path is among Python's modules."""
    return f"onnxq_{what.replace(' ', '_')}_{path.stem}"


@contextmanager
def _faults_of(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OnnxqError as error:
        raise ConfigError(f"{what} {path}: {error}") from error
    except (Exception, SystemExit) as error:  # whatever foreign code raises is that file's fault, not onnxq's
        raise ConfigError(f"{what} {_place(path, error)}: {type(error).__name__}: {error}") from error


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


def _place(path: Path, error: BaseException) -> str:
    """The file and the line of a file or folder where an error was raised, as far as that is known."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename}, line {frame.lineno}" for frame in frames if Path(frame.filename).is_relative_to(path)]
    return lines[-1] if lines else str(path)
