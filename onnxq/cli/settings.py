"""From options to values: plugins run, configuration file and options merged."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from onnxq.config import Config, read_config
from onnxq.errors import ConfigError, OnnxqError


def read_settings(
    config: Path | None,
    *,
    skip: Sequence[str] | None = None,
    observer: str | None = None,
    weight_observer: str | None = None,
    samples: int | None = None,
    min_sqnr: float | None = None,
) -> Config:
    """The configuration file with the options on top; patterns of --skip add to those of the file."""
    settings = read_config(config)
    return read_config(
        settings,
        skip=(*settings.skip, *skip) if skip else None,
        observer=observer,
        weight_observer=weight_observer,
        samples=samples,
        minimum_sqnr_db=min_sqnr,
    )


def load_plugins(paths: Sequence[Path] | None) -> None:
    """Run Python files that register things; an error inside one is reported with its line."""
    for path in paths or ():
        if not path.is_file():
            raise ConfigError(f"no plugin file at {path}")
        module = ModuleType(f"onnxq_plugin_{path.stem}")
        module.__file__ = str(path)
        sys.modules[module.__name__] = module  # dataclasses look their module up
        try:
            # Not through the import system, which would leave compiled files beside the user's.
            exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
        except OnnxqError as error:
            raise ConfigError(f"plugin {path}: {error}") from error
        except Exception as error:  # whatever foreign code raises is the plugin's fault, not onnxq's
            raise ConfigError(f"plugin {path}{_line_in(path, error)}: {type(error).__name__}: {error}") from error


def _line_in(path: Path, error: Exception) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""
