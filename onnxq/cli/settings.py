"""From options to values: plugins run, configuration file and options merged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnxq.config import Config, read_config
from onnxq.plugins import run_file


def read_settings(
    config: Path | None,
    *,
    skip: Sequence[str] | None = None,
    observer: str | None = None,
    weight_observer: str | None = None,
    samples: int | None = None,
    min_sqnr: float | None = None,
    preprocess: str | None = None,
    workers: int | None = None,
    memory_limit: str | None = None,
    provider: str | None = None,
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
        preprocess=preprocess,
        workers=workers,
        memory_limit=memory_limit,
        provider=provider,
    )


def load_plugins(paths: Sequence[Path] | None) -> None:
    """Run Python files that register things."""
    for path in paths or ():
        run_file(path, "plugin")
