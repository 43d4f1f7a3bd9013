"""What `onnxq quantize` does on top of calibration: the improvements that a configuration asks for.

A search is decided by calibrated models, which are cheap. What it ends with is improved too if somebody has said an
effort, or names of improvements: a default is nobody's word, and an improvement of each configuration takes as long
as `onnxq quantize` does.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnxq.config import Config
from onnxq.ptq.method import read_improvement
from onnxq.ptq.search.run import refuse_without_torch
from onnxq.ptq.search.stage import wanted_schedule
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
