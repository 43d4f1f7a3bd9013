"""Python files of the user's that register backends, passes, observers or emitters."""

from __future__ import annotations

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
    module = ModuleType(f"onnxq_{what}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except OnnxqError as error:
        raise ConfigError(f"{what} {path}: {error}") from error
    except (Exception, SystemExit) as error:  # whatever foreign code raises is that file's fault, not onnxq's
        raise ConfigError(f"{what} {path}{_line_in(path, error)}: {type(error).__name__}: {error}") from error
    return module


def _line_in(path: Path, error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""
