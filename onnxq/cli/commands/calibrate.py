"""`onnxq calibrate`: scales and zero points for a plan, or the statistics to find them from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_error, print_warning, say
from onnxq.cli.progress import run_bar
from onnxq.types.dialect import DIALECTS

if TYPE_CHECKING:
    from onnxq.calibrate import Gathered
    from onnxq.output_folder import OutputFolder
    from onnxq.session.session import Calibrated, Session
    from onnxq.types import QuantPlan

*_FIRST, _LAST = ("--skip", *(f"--{name}" for name in DIALECTS))
PLAN_OPTIONS = f"{', '.join(_FIRST)} and {_LAST} belong to placing: give them to 'onnxq place', or leave --plan out"


@options.with_settings(
    "target data images plan config foreign code ranges place samples random shape stats shard fresh engine"
)
def calibrate(
    model: options.ModelArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="Parameters for qparams.json; statistics for a .npz file.")],
    given: options.Given,
    backend: Annotated[
        str | None, typer.Option("--backend", "-b", help="Target; with --plan only for a backend file.py.")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="Plan from 'onnxq place'; made anew when left out.", callback=options.settled),
    ] = None,
    random: options.RandomOption = None,
    shape: options.ShapeOption = None,
    stats: options.StatisticsOption = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", help="Only part i of n of the samples; 'onnxq merge' joins them.", metavar="I/N"),
    ] = None,
    fresh: options.FreshOption = False,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    strict: options.StrictOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Find scale and zero point of every tensor in a plan by running MODEL on data.

    Without --plan the plan is made first and written as plan.json beside the parameters.

    With -o FILE.npz the statistics are written instead. A later run with --stats FILE.npz finds parameters in them
    without running the model, for every observer that reads histograms. A run that was cut off goes on where it ended.
    Under torchrun the processes run a part of the samples each.
    """
    from onnxq.calibrate import Gathered, activation_leaders
    from onnxq.cli.artifacts import PLAN_NAME, QPARAMS_NAME, check_statistics_file, output_file, read_plan
    from onnxq.cli.data import chosen_preprocess, data_warnings, open_data
    from onnxq.cli.planned import check_fits, planned_session, refuse_placing, with_observers
    from onnxq.cli.settings import load_plugins, read_settings
    from onnxq.cli.shapes import read_shapes
    from onnxq.distributed import in_step, torchrun_ranks
    from onnxq.errors import ConfigError
    from onnxq.graph import Graph
    from onnxq.output_folder import claim, refuse_folders
    from onnxq.progress.time_limit import NOT_OBEYED
    from onnxq.runtime.fault import own_fault
    from onnxq.runtime.samples import read_shard
    from onnxq.session.prepare import dead_notes, untimed
    from onnxq.session.session import open_session
    from onnxq.types.note import folded

    with ExitStack() as stack:
        with torchrun_ranks(print_error) as ranks:
            first = ranks is None or ranks.first
            quiet = quiet or not first
            with in_step(ranks):
                load_plugins(plugin, backend)
                graph = Graph.load(model)
                settings = read_settings(given, graph, shapes=read_shapes(shape, graph))
                backend = given["backend"]
                data = given["data"] if random is not None else settings.data
                strict = strict or settings.strict
                collects_only = out.suffix == ".npz"
                _check_files(collects_only, stats, shard, fresh, alone=ranks is None)
                part = None if shard is None else read_shard(shard)
                check_statistics_file(out if collects_only else stats, model, data)
                name = out.name if collects_only else QPARAMS_NAME
                target = output_file(out, name, model, *(path for path in (plan, stats) if path is not None))
                if plan is None and target.name == PLAN_NAME:
                    raise ConfigError(
                        f"the plan is written as {PLAN_NAME} beside the parameters: give these another name"
                    )
                if first and not collects_only:  # now, and not after minutes of work
                    refuse_folders([target, *([target.with_name(PLAN_NAME)] if plan is None else [])])
                    output = stack.enter_context(claim(target.parent, None if plan is None else target.name))
                if plan is None and backend is None and settings.backend is None:
                    raise ConfigError(
                        "say for which target: -b BACKEND (see 'onnxq list backends'), or --plan plan.json"
                    )
                if plan is not None and (given["skip"] or settings.translation is not None):
                    raise ConfigError(PLAN_OPTIONS)
                if plan is not None:
                    refuse_placing(given, "observer", "weight_observer", rest=", or leave --plan out")
                made = None if plan is None else read_plan(plan)
                # Without data, what the statistics hold is enough.
                stored = stats is not None and data is None and random is None and not fresh
                if stored:
                    _check_stored(stats, given)
                if made is None:
                    target_name = None if settings.translation is not None else backend
                    session = open_session(
                        graph, backend=target_name, config=settings, passes=passes or (), strict=strict
                    )
                    observes = session.backend.needs_data
                else:
                    session = planned_session(graph, made, backend, settings, passes)
                    observes = bool(activation_leaders(made))
                steps = chosen_preprocess(settings, made, data)
                without = data is None and random is None and stats is None and not observes
                if not (stored or without):
                    session.use_dataset(open_data(session.original, data, random, settings.samples, steps))
                if made is None:
                    wanted = session.plan()
                else:
                    check_fits(session, made, strict=strict)
                    wanted = with_observers(made, given["observer"], given["weight_observer"])
                if collects_only and not activation_leaders(wanted):
                    raise ConfigError(
                        "the plan observes no activations, so there are no statistics to write into a file"
                    )
            if without:
                gathered = Gathered()
            elif session.dataset is None:
                assert stats is not None
                with in_step(ranks):
                    gathered = _stored(stats, session)
            else:
                file = target if collects_only else stats
                with (
                    run_bar("calibrate", quiet=quiet) as progress,
                    _telling_how_to_go_on(file, quiet=quiet),
                    own_fault(session.original, session.dataset),
                ):
                    together = replace(session, ranks=ranks, progress=progress, tracker=progress)
                    gathered = together.gather(wanted, file=file, shard=part, fresh=fresh)
        if not first:
            return
        notes = [*dead_notes(session.prepared), *([] if session.dataset is None else session.dataset.notes)]
        if collects_only:
            warnings = _report_statistics(target, session, gathered, wanted, notes, whole=part is None, quiet=quiet)
        else:

            def gather_again(changed: QuantPlan) -> Gathered:
                if session.dataset is None:  # what is stored is all there is
                    return gathered
                return session.gather(changed, file=stats)

            # The user's own plan stays as it is, whatever the data says about it.
            found = session.find_parameters(wanted, gathered, gather_again if plan is None else None)
            found = replace(found, notes=(*notes, *found.notes))
            _write_parameters(output, target.name, found, wanted, new_plan=plan is None, quiet=quiet)
            warnings = list(found.warnings)
    limited = [NOT_OBEYED] if settings.time_limit is not None else []
    warnings = list(dict.fromkeys([*data_warnings(random), *warnings, *untimed(settings), *limited]))
    for warning in folded(warnings):
        print_warning(str(warning))
    if strict and warnings:
        raise typer.Exit(1)


def _check_files(collects_only: bool, stats: Path | None, shard: str | None, fresh: bool, *, alone: bool) -> None:
    from onnxq.errors import ConfigError

    if collects_only and stats is not None:
        raise ConfigError(
            "-o and --stats both name a file for statistics: give one of them, and parameters to the other"
        )
    if shard is not None and not collects_only:
        raise ConfigError("--shard collects a part of the statistics: write them with -o FILE.npz, then 'onnxq merge'")
    if shard is not None and not alone:
        raise ConfigError("under torchrun the processes divide the samples themselves: leave --shard out")
    if fresh and not collects_only and stats is None:
        raise ConfigError("--fresh is about a file of statistics: name it with --stats, or with -o FILE.npz")


def _check_stored(path: Path | None, given: options.Given) -> None:
    """Statistics that are to be used without data: the file is there, and nothing was asked for that needs a run."""
    from onnxq.calibrate.resume import partial_path
    from onnxq.errors import ConfigError

    assert path is not None
    if not path.exists():
        begun = partial_path(path)
        rest = f" ({begun} is of a run that was cut off)" if begun.exists() else ""
        raise ConfigError(f"there are no statistics at {path}{rest}: give the data with -d to collect them")
    for key in ("samples", "workers", "memory_limit", "provider"):
        if given[key] is not None:
            raise ConfigError(
                f"{options.OPTIONS[key].name} is about running the model, but {path} is used as it is: give -d too, or "
                "leave it out"
            )


@contextmanager
def _telling_how_to_go_on(path: Path | None, *, quiet: bool) -> Iterator[None]:
    from onnxq.calibrate.resume import partial_path

    try:
        yield
    except KeyboardInterrupt:
        if path is not None and partial_path(path).exists():
            say(f"what was seen so far is in {partial_path(path)}: the same command goes on from there", quiet=quiet)
        raise


def _keep_other_plan(path: Path, stage: Path, plan: QuantPlan, *, quiet: bool) -> None:
    """An older plan of that name may be one that the user has edited."""
    from onnxq.errors import OnnxqError
    from onnxq.files import replace_file
    from onnxq.json_file import read_object

    try:
        same = not path.exists() or read_object(path, "plan") == plan.to_json()
    except OnnxqError:  # whatever it is, it is somebody's
        same = False
    if not same:
        older = path.with_name(f"{path.stem}.previous{path.suffix}")
        replace_file(stage / older.name, lambda stream: stream.write(path.read_bytes()))
        say(f"another plan that was there is now {older}; to use one that you edited, give it with --plan", quiet=quiet)


def _stored(path: Path, session: Session) -> Gathered:
    """The statistics of a file that belongs to this model."""
    from onnxq.calibrate import gathered_from, read_statistics
    from onnxq.calibrate.identity import model_identity
    from onnxq.calibrate.statistics_file import check_same

    file = read_statistics(path)
    check_same(file, model=model_identity(session.prepared.graph, file.model))
    return gathered_from(file)


def _report_statistics(
    target: Path,
    session: Session,
    gathered: Gathered,
    plan: QuantPlan,
    notes: list[str],
    *,
    whole: bool,
    quiet: bool,
) -> list[str]:
    from onnxq.calibrate import activation_leaders
    from onnxq.calibrate.remarks import data_remarks, nonfinite_warnings
    from onnxq.types.note import folded

    leaders = activation_leaders(plan)
    say(
        f"statistics of {len(gathered.statistics)} tensors from {gathered.samples} samples are in {target}",
        quiet=quiet,
    )
    remarks = data_remarks(gathered, leaders) if whole else ()  # what few samples mean shows in the merged file
    for note in folded([*notes, *gathered.notes, *remarks]):
        say(f"note: {note}", quiet=quiet)
    return nonfinite_warnings(session.prepared.graph, gathered, leaders)


def _write_parameters(
    output: OutputFolder, name: str, found: Calibrated, plan: QuantPlan, *, new_plan: bool, quiet: bool
) -> None:
    from onnxq.calibrate.identity import model_identity
    from onnxq.cli.artifacts import PLAN_NAME
    from onnxq.files import write_json
    from onnxq.output_folder import staging
    from onnxq.types.note import folded

    target, qparams = output.path / name, found.state.qparams
    model = model_identity(found.state.graph, plan.model)
    moved = not new_plan and plan.model not in ("", model)  # as after more training
    kept = replace(found.state.plan, model=model)
    new = new_plan or moved or len(kept) != len(plan)
    beside = target.with_name(PLAN_NAME if new_plan else f"{target.stem}.plan.json")
    # A link stays a link, and what it points to is replaced: it may be on another disk, so that it cannot be moved.
    linked = any(path.is_symlink() for path in (target, beside))
    with nullcontext(output.path) if linked else staging(output) as stage:
        write_json(stage / name, qparams.for_json_file())
        if new:
            _keep_other_plan(beside, stage, kept, quiet=quiet)
            write_json(stage / beside.name, kept.to_json())
    if moved:
        say("note: the plan was made for a model with other constants; these parameters belong to MODEL", quiet=quiet)
    say(f"parameters of {len(qparams)} tensors from {found.samples} samples written to {target}", quiet=quiet)
    if new:
        say(f"the plan that belongs to them written to {beside}", quiet=quiet)
    for note in folded(found.notes):
        say(f"note: {note}", quiet=quiet)
