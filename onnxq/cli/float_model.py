"""Whether a float model is the one that a plan and its parameters belong to, known by its hash.

Improvements change constants: then plan and parameters belong to the float model that stands beside them, and with the
one that was given to `quantize` they would mean something else, without anything that looks wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from onnxq.calibrate.identity import model_identity
from onnxq.cli.artifacts import PLAN_NAME, read_plan
from onnxq.cli.console import print_warning, say
from onnxq.cli.planned import check_fits, planned_session
from onnxq.config import read_config
from onnxq.errors import ConfigError, OnnxqError
from onnxq.graph import Graph
from onnxq.json_file import read_object
from onnxq.pipeline.artifacts import FLOAT_MODEL, REPORT
from onnxq.pipeline.delivered import model_in
from onnxq.session.session import Session, open_session
from onnxq.types import QuantPlan

Open = Callable[[Path], Session]
"""Opens a model with the settings that the plan was made with."""


def session_for(
    model: Path, session: Session, plan: QuantPlan, folder: Path, *, other: bool, quiet: bool, strict: bool = False
) -> Session:
    """The session with the float model that the plan in `folder` belongs to: `model`, or the one beside the plan.

    A warning says where it is the one beside. ConfigError where neither fits, unless `other` takes the given one all
    the same. A plan of an earlier onnxq says nothing, which is a note.
    """
    check_fits(session, plan, strict=strict)
    if not plan.model:
        say(f"note: the plan does not say to which float model it belongs, so {model} is taken for it", quiet=quiet)
        return session
    if model_identity(session.prepared.graph, plan.model) == plan.model:
        return session
    if other:
        print_warning(f"plan and parameters belong to another float model than {model}: its constants are other ones")
        return session

    def reopened(path: Path) -> Session:
        return open_session(path, backend=session.target, config=session.settings, passes=session.own_passes)

    beside = folder / f"{model_in(folder).stem}{FLOAT_MODEL}"
    changed = _fitting(beside, plan, reopened)
    if changed is not None:
        print_warning(
            f"plan and parameters belong to {beside}, whose constants improvements have changed, and not to {model}: "
            "constants are taken from there. --other-model takes those of the given model"
        )
        return session.with_prepared(changed.prepared)
    raise ConfigError(
        f"{model} is not the float model that plan and parameters in {folder} belong to: it has the same nodes and "
        "tensors, but other constants or attributes. Give the model that they were made of, or calibrate again for "
        "this one with 'onnxq calibrate MODEL --plan PLAN'. --other-model takes it all the same"
    )


def float_model_in(folder: Path, plan: QuantPlan, given: Path | None, open_model: Open) -> Session:
    """The session of the float model that the plan of the run in `folder` belongs to.

    That is `given`, or the model that the run has left there: a note says so of the model that the run was made of, a
    warning of another. ConfigError where none fits, or none is there.
    """
    which = f"say which float model the run in {folder} was made of, with --float MODEL"
    if not plan.model:
        if given is None:
            raise ConfigError(which)
        print_warning(f"the plan does not say to which float model it belongs, so {given} is taken for it")
        session = open_model(given)
        check_fits(session, plan)
        return session
    why = "it has other constants or attributes"
    if given is not None:
        session = open_model(given)
        try:
            check_fits(session, plan)
        except OnnxqError as error:
            why = str(error)
        else:
            if model_identity(session.prepared.graph, plan.model) == plan.model:
                return session
    beside = folder / f"{model_in(folder).stem}{FLOAT_MODEL}"
    changed = _fitting(beside, plan, open_model)
    if changed is not None:
        if given is not None and not _is_same(beside, given):
            _tell(
                f"plan and parameters in {folder} belong to {beside}, whose constants improvements have changed: that "
                f"is taken instead of {given}",
                folder,
                given,
            )
        return changed
    if given is not None:
        raise ConfigError(f"{given} is not the float model that the run in {folder} was made of: {why}")
    raise ConfigError(f"{which}: {beside} is of another run" if beside.is_file() else which)


def float_model_of(quantized: Path, given: Path, graph: Graph) -> Path:
    """The float model to hold a written model against: `given`, read as `graph`, or the one that lies beside it.

    A note says where it is not the one that the run was made of, a warning where `given` is another one.
    """
    folder = quantized.parent
    if not (folder / PLAN_NAME).is_file() or not _is_same(model_in(folder), quantized):
        return given  # written by somebody else, or moved away from its plan
    plan = read_plan(folder)
    if not plan.model:
        return given

    def opened(model: Path | Graph) -> Session:
        return planned_session(model, plan, None, read_config(None), None)

    try:
        session = opened(graph)
        check_fits(session, plan)
        if model_identity(session.prepared.graph, plan.model) == plan.model:
            return given
    except OnnxqError as error:
        print_warning(f"whether {given} is the float model of {quantized} is not known: {error}")
        return given
    beside = folder / f"{quantized.stem}{FLOAT_MODEL}"
    if _fitting(beside, plan, opened) is None:
        print_warning(f"{given} is not the float model of {quantized}: it has other constants or attributes")
        return given
    if not _is_same(beside, given):
        _tell(
            f"{quantized} is compared with {beside}, whose constants improvements have changed, instead of {given}; "
            "--other-model compares it with that",
            folder,
            given,
        )
    return beside


def _tell(message: str, folder: Path, given: Path) -> None:
    """A note where `given` is what the run in `folder` was made of, as its report has it, else a warning."""
    report = folder / REPORT
    made_of = read_object(report, "report").get("model") if report.is_file() else None
    if isinstance(made_of, str) and _is_same(Path(made_of), given):
        say(f"note: {message}")
    else:
        print_warning(message)


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _fitting(path: Path, plan: QuantPlan, open_model: Open) -> Session | None:
    """The session of a file, if it is there and is the float model of a plan."""
    if not path.is_file():
        return None
    try:
        session = open_model(path)
        check_fits(session, plan)
    except OnnxqError:  # of another run
        return None
    return session if model_identity(session.prepared.graph, plan.model) == plan.model else None
