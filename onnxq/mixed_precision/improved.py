"""What `onnxq quantize` does on top of calibration: the improvements that a configuration asks for.

A search is decided by calibrated models, which are cheap. What it ends with is improved too if somebody has said an
effort, or names of improvements: a default is nobody's word, and an improvement of each configuration takes as long
as `onnxq quantize` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from onnxq.config import Config
from onnxq.pipeline.run import calibrate_again
from onnxq.progress import Progress
from onnxq.ptq.method import State, read_improvement
from onnxq.ptq.search.run import refuse_without_torch
from onnxq.ptq.search.stage import improve_calibrated, wanted_schedule
from onnxq.runtime import Dataset
from onnxq.session.prepare import Prepared
from onnxq.version import __version__


def improvements_of(config: Config) -> tuple[str, ...]:
    """What is tried for every configuration that a search ends with; nothing where nobody has said so."""
    return tuple(wanted_schedule(config).names()) if {"effort", "improvements"} & config.model_fields_set else ()


def check_improvements(names: Iterable[str]) -> None:
    """A wrong name, or PyTorch that is missing, is an error now, and not only after a search."""
    refuse_without_torch([read_improvement(name) for name in names])


def identity_of_improvements(names: tuple[str, ...], samples: str) -> tuple[str, ...]:
    """What an improved score depends on beside the calibrated model; `samples` are those that steps are fitted to."""
    return ("improved", __version__, samples, *names)


def improved(
    prepared: Prepared, state: State, dataset: Dataset, *, folder: Path | None, progress: Progress | None
) -> tuple[State | None, list[str]]:
    """A calibrated model with its improvements as `onnxq quantize` has it, and remarks; None if it can try nothing.

    `folder` keeps what long steps have done.
    """
    outcome, notes = improve_calibrated(
        prepared,
        state,
        dataset,
        calibrate_again,
        folder=folder,
        progress=progress,
    )
    return None if outcome is None else outcome.state, notes
