"""The stage of the pipeline: a calibrated model as the state that steps change, and the samples that they see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from onnxq.calibrate import activation_leaders
from onnxq.calibrate.kept_statistics import KeptStatistics
from onnxq.config import Config
from onnxq.emit.kept_simulation import KeptSimulation
from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph.write import weight_bytes
from onnxq.progress import Clock
from onnxq.ptq.equalization.cross_layer_equalization import scalable_channel_axes
from onnxq.ptq.method import ACTIVATIONS, IMPROVEMENTS, Samples, State, Task, method_name
from onnxq.ptq.search.allowance import Allowance, read_skipped
from onnxq.ptq.search.evaluator import Evaluator, KeptSessions, computed_in_integers
from onnxq.ptq.search.loss_on_few import LossOnFew
from onnxq.ptq.search.outcome import Outcome, Reached
from onnxq.ptq.search.run import improve
from onnxq.ptq.search.sample_split import FEWEST, split_samples
from onnxq.ptq.search.schedule import Schedule, schedule_of
from onnxq.ptq.search.without_data import improve_without_data
from onnxq.ptq.weights.scale_search import has_many_bits
from onnxq.runtime.blas import one_blas_thread
from onnxq.runtime.fault import own_fault
from onnxq.session.session import Calibrated, Session
from onnxq.temporary import remove_stale

LARGE = 2**30
"""Bytes of weights from which improvements are tried only if somebody asks for them."""


IMPROVING = "improving"
"""Folder of unfinished work on improvements, below that of the files."""

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


def wanted_schedule(config: Config, *, few_bits: bool = False) -> Schedule:
    """What a configuration wants to be tried: improvements by name, an effort, or both if both were given.

    A name that is left out and not tried anyway is an error.
    """
    skipped = frozenset(map(method_name, config.skip_improvements))
    both = [name for name in config.improvements or () if method_name(name) in skipped]
    if both:
        raise ConfigError(
            f"{config.source('skip_improvements')}: '{both[0]}' is asked for by name, and to be left out: take it out "
            "of one of the two"
        )
    named = config.improvements
    if named is None:
        schedule = schedule_of(config.effort, few_bits=few_bits)
    elif config.effort > 0 and "effort" in config.model_fields_set:
        asked: dict[str, tuple[str, ...]] = {}
        for name in named:
            asked[method_name(name)] = (*asked.get(method_name(name), ()), name)
        rounding = frozenset(name for name in asked if IMPROVEMENTS.get(name).rounds)
        schedule = schedule_of(config.effort, few_bits=few_bits).asked_for(asked, rounding)
    else:
        schedule = Schedule.of_names(named)
    for name in config.skip_improvements:
        if name not in IMPROVEMENTS:
            near = did_you_mean(name, IMPROVEMENTS.names())
            raise ConfigError(
                f"{config.source('skip_improvements')}: there is no improvement '{name}'.{near} Known: "
                f"{', '.join(IMPROVEMENTS.names())}"
            )
    return schedule.without(skipped)


def _has_few_bits(state: State) -> bool:
    """Whether there are weights for which every method pays."""
    specs = (placement.spec for placement in state.plan.active if placement.role == "weight")
    return any(spec.evenly_spaced and not has_many_bits(spec) for spec in specs)


def _too_large(session: Session) -> bool:
    asked = {"effort", "improvements"} & session.settings.model_fields_set
    return not asked and weight_bytes(session.prepared.graph.gs) > LARGE


def statistics_to_share(session: Session) -> KeptStatistics | None:
    """What calibration and improvements both look at; None where there are no improvements.

    Nor are parts of the samples those that calibration counts where their order changes, or feeds hold several.
    """
    config, dataset = session.settings, session.dataset
    if dataset is None or dataset.source.shuffles or not wanted_schedule(config).names() or _too_large(session):
        return None
    if any(shape[:1] not in ((), (1,)) for shape in (dataset.first_shapes() or {}).values()):
        return None
    split = split_samples(dataset)
    if split is None:
        return None
    methods = frozenset(map(method_name, wanted_schedule(config).names()))
    scales = "cross_layer_equalization" in methods
    return KeptStatistics(*split.in_parts(), config.engine(), *([scalable_channel_axes] if scales else ()))


def improve_model(
    ready: Calibrated, folder: Path, *, reached: Reached | None = None
) -> tuple[Calibrated, Outcome | None]:
    """What the settings' effort makes of a calibrated model, and what was tried; None if nothing was.

    What long steps have done so far stands in `folder`/improving until the files are written, and is used by the next
    run of the same command. `reached` gets what each level of the effort has come to.
    """
    session, clock = ready.session, Clock()
    with clock.stage("improve"), own_fault(session.original, session.dataset):
        skipped = read_skipped(session.settings.skip_steps)
        outcome, notes = improve_calibrated(
            session, ready.state, folder=folder / IMPROVING, reached=reached, skipped=skipped, kept=ready.kept
        )
        if outcome is None and skipped and not (session.limit and session.limit.left_out):
            raise ConfigError(f"{session.settings.source('skip_steps')}: skip_steps: there are no steps in this run")
    ready = replace(ready, notes=(*ready.notes, *notes))
    if outcome is None:
        return ready, None
    session.clock.seconds |= clock.seconds
    return replace(ready, state=outcome.state), outcome


def improve_calibrated(
    session: Session,
    state: State,
    *,
    folder: Path | None = None,
    reached: Reached | None = None,
    skipped: Mapping[int, str] | None = None,
    kept: KeptStatistics | None = None,
) -> tuple[Outcome | None, list[str]]:
    """The outcome of the settings' effort, and remarks; None where nothing was to be tried.

    `folder` keeps what long steps have done. `reached` gets what each level of the effort has come to. `skipped` are
    steps to leave out, by their numbers. `kept` are the statistics that calibration has collected
    (`statistics_to_share`).
    """
    config, prepared = session.settings, session.prepared
    if session.dataset is None and config.improvements is None:
        return None, []
    schedule = wanted_schedule(config, few_bits=_has_few_bits(state))
    if session.dataset is None:
        return improve_without_data(session, state, config.improvements or ()), []
    if not schedule.names():
        return None, []
    if _too_large(session):
        return None, [
            "nothing was tried to improve the model: its weights have more than "
            f"{LARGE // 2**30} GB, and each step would write and run all of it. Ask for it with --effort or --improve"
        ]
    split = split_samples(session.dataset)
    if split is None and config.improvements is not None:
        raise ConfigError(
            f"{config.source('improvements', *config.improvements[:1])}: improvements take {FEWEST} samples or more, "
            "some to fit to and others to evaluate on: give more, or leave them out"
        )
    if split is None:
        return None, [
            f"nothing was tried to improve the model: that takes {FEWEST} samples or more, some to fit to and others "
            "to evaluate on"
        ]
    allowance = Allowance(session.tracker, session.limit, skipped)
    if not allowance.is_enough_for(schedule.names()):
        allowance.leave_out_all(schedule.names())
        return None, []
    simulation = KeptSimulation(prepared.backend)
    statistics = kept or KeptStatistics(*split.in_parts(), config.engine())
    task = Task(
        reference=prepared.graph,
        backend=prepared.backend,
        samples=split.fitted,
        folder=folder,
        engine=config.engine(),
        statistics=statistics,
        progress=session.progress,
        plan_again=session.plan_again,
        simulation=simulation,
        in_integers=computed_in_integers(prepared.backend),
    )

    def recalibrate(state: State, samples: Samples | None) -> State:
        leaders = activation_leaders(state.plan)
        collect = statistics.on_all if samples is None else statistics.on_some
        seen = collect(state.graph, leaders, reusable=False) if leaders else None
        return session.recalibrated(state, samples, seen)

    loss_of = LossOnFew(prepared.graph, prepared.backend, split.fitted, task.simulated)
    task = replace(task, recalibrated=lambda changed: recalibrate(changed, None), loss_of=loss_of)
    last = KeptSessions(simulation, in_integers=task.in_integers)
    evaluator, *further = (
        Evaluator(prepared.graph, prepared.backend, samples, last=last) for samples in split.evaluated()
    )
    with one_blas_thread():
        outcome = improve(
            state,
            task,
            evaluator,
            schedule,
            recalibrate,
            further=further,
            progress=session.progress,
            reached=reached,
            allowance=allowance,
        )
    return outcome, []
