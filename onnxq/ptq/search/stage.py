"""The stage of the pipeline: a calibrated model as the state that steps change, and the samples that they see."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from onnxq.config import Config
from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph.write import weight_bytes
from onnxq.progress import Progress
from onnxq.ptq.method import ACTIVATIONS, IMPROVEMENTS, Samples, State, Task, method_name
from onnxq.ptq.search.division import FEWEST, divide
from onnxq.ptq.search.evaluator import Evaluator, LastSession
from onnxq.ptq.search.outcome import Outcome, Reached
from onnxq.ptq.search.run import improve
from onnxq.ptq.search.schedule import Schedule, schedule_of
from onnxq.runtime import Dataset
from onnxq.session.prepare import Prepared
from onnxq.temporary import remove_stale
from onnxq.types import QuantPlan

FITTED_FOR_EACH_HELD = 3
"""Fitted samples that the acceptance test pools with each held-out one: all of them where every fourth is held out."""

LARGE = 2**30
"""Bytes of weights from which improvements are tried only if somebody asks for them."""


BLOCK_FILE = re.compile(r"[a-z0-9_]+-\d{3,}-[0-9a-f]{16}\.npz")
"""What steps leave in their folder: the outcome of a block."""


def remove_unfinished(folder: Path) -> None:
    """Remove what steps have left in their folder, and the folder if nothing else is in it."""
    if folder.is_dir():
        for path in folder.iterdir():
            if BLOCK_FILE.fullmatch(path.name):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # somebody has files of his own there
            folder.rmdir()


def remove_stale_values(folder: Path) -> None:
    """Remove values of layers that a killed run has left; what blocks have come to stays for a run that goes on."""
    if folder.is_dir() and not folder.is_symlink():
        remove_stale(folder, ACTIVATIONS)
        with suppress(OSError):  # the work of blocks is there, or files of the user
            folder.rmdir()


def wanted_schedule(config: Config) -> Schedule:
    """What a configuration wants to be tried; a name that is left out and not tried anyway is an error."""
    skipped = frozenset(map(method_name, config.skip_improvements))
    both = [name for name in config.improvements or () if method_name(name) in skipped]
    if both:
        raise ConfigError(
            f"{config.source('skip_improvements')}: '{both[0]}' is asked for by name, and to be left out: take it out "
            "of one of the two"
        )
    named = config.improvements
    schedule = schedule_of(config.effort) if named is None else Schedule.of_names(named)
    for name in config.skip_improvements:
        if name not in IMPROVEMENTS:
            near = did_you_mean(name, IMPROVEMENTS.names())
            raise ConfigError(
                f"{config.source('skip_improvements')}: there is no improvement '{name}'.{near} Known: "
                f"{', '.join(IMPROVEMENTS.names())}"
            )
    return schedule.without(skipped)


def _too_large(prepared: Prepared) -> bool:
    asked = {"effort", "improvements"} & prepared.config.model_fields_set
    return not asked and weight_bytes(prepared.graph.gs) > LARGE


def improve_calibrated(
    prepared: Prepared,
    state: State,
    dataset: Dataset,
    gather: Callable[[Prepared, QuantPlan, Dataset | Samples], State],
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
    reached: Reached | None = None,
) -> tuple[Outcome | None, list[str]]:
    """The outcome of the configuration's effort, and remarks; None where nothing was to be tried.

    `gather` calibrates a graph anew on all samples or on some, `folder` keeps what long steps have done. `reached` gets
    what each level of the effort has come to.
    """
    schedule = wanted_schedule(prepared.config)
    if not schedule.names():
        return None, []
    if _too_large(prepared):
        return None, [
            "nothing was tried to improve the model: its weights have more than "
            f"{LARGE // 2**30} GB, and each step would write and run all of it. Ask for it with --effort or --improve"
        ]
    divided = divide(dataset)
    if divided is None and prepared.config.improvements is not None:
        raise ConfigError(
            f"{prepared.config.source('improvements')}: improvements take {FEWEST} samples or more, some to fit to and "
            "others to judge by: give more, or leave them out"
        )
    if divided is None:
        return None, [
            f"nothing was tried to improve the model: that takes {FEWEST} samples or more, some to fit to and others "
            "to judge by"
        ]
    task = Task(
        reference=prepared.graph,
        backend=prepared.backend,
        samples=divided.fitted,
        folder=folder,
        engine=prepared.config.engine(),
        progress=progress or (lambda what, done, total: None),
    )
    last = LastSession(prepared.backend)
    others = islice(divided.fitted, FITTED_FOR_EACH_HELD * len(divided.held))
    evaluator = Evaluator(prepared.graph, prepared.backend, divided.held, last=last)
    fit_evaluator = Evaluator(prepared.graph, prepared.backend, others, last=last)

    def recalibrate(changed: State, samples: Samples | None) -> State:
        return gather(replace(prepared, graph=changed.graph), changed.plan, dataset if samples is None else samples)

    outcome = improve(
        state, task, evaluator, schedule, recalibrate, fit_evaluator=fit_evaluator, progress=progress, reached=reached
    )
    return outcome, []
