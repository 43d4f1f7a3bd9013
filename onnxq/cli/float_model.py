"""Whether a float model is the one that a plan and its parameters belong to, known by its hash.

Improvements change constants: then plan and parameters belong to the float model that stands beside them, and with the
one that was given to `quantize` they would mean something else, without anything that looks wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from onnxq.calibrate.identity import model_identity
from onnxq.cli.artifacts import PLAN_NAME, model_in, read_plan
from onnxq.cli.console import print_warning, say
from onnxq.cli.planned import prepare_again
from onnxq.config import read_config
from onnxq.errors import ConfigError, OnnxqError
from onnxq.graph import Graph
from onnxq.pipeline.artifacts import FLOAT_MODEL
from onnxq.session.prepare import Prepared
from onnxq.types import QuantPlan

Prepare = Callable[[Graph], Prepared]
"""Takes a model through the passes that the plan was made behind."""

Load = Callable[[Path], Graph]
"""Reads a model as the run has read it."""


class FloatModel(NamedTuple):
    """A float model as it was read, and as the plan has it."""

    graph: Graph
    prepared: Prepared


def prepared_for(
    model: Path, graph: Graph, plan: QuantPlan, folder: Path, prepare: Prepare, *, other: bool, quiet: bool
) -> Prepared:
    """The float model that the plan in `folder` belongs to, prepared: `model`, read as `graph`, or the one beside it.

    A warning says where it is the one beside. ConfigError where neither fits, unless `other` takes the given one all
    the same. A plan of an earlier onnxq says nothing, which is a note.
    """
    prepared = prepare(graph.copy())
    if not plan.model:
        say(f"note: the plan does not say to which float model it belongs, so {model} is taken for it", quiet=quiet)
        return prepared
    if model_identity(prepared.graph) == plan.model:
        return prepared
    if other:
        print_warning(f"plan and parameters belong to another float model than {model}: its constants are other ones")
        return prepared
    beside = folder / f"{model_in(folder).stem}{FLOAT_MODEL}"
    changed = _prepared(beside, plan, prepare)
    if changed is not None:
        print_warning(
            f"plan and parameters belong to {beside}, whose constants improvements have changed, and not to {model}: "
            "constants are taken from there. --other-model takes those of the given model"
        )
        return changed
    raise ConfigError(
        f"{model} is not the float model that plan and parameters in {folder} belong to: it has the same nodes and "
        "tensors, but other constants or attributes. Give the model that they were made of, or calibrate again for "
        "this one with 'onnxq calibrate MODEL --plan PLAN'. --other-model takes it all the same"
    )


def float_model_in(folder: Path, plan: QuantPlan, given: Path | None, load: Load, prepare: Prepare) -> FloatModel:
    """The float model that the plan of the run in `folder` belongs to: `given`, or the one that the run has left there.

    A warning says where it is not the given one. ConfigError where none fits, or none is there.
    """
    which = f"say which float model the run in {folder} was made of, with --float MODEL"
    if not plan.model:
        if given is None:
            raise ConfigError(which)
        print_warning(f"the plan does not say to which float model it belongs, so {given} is taken for it")
        graph = load(given)
        return FloatModel(graph, prepare(graph.copy()))
    why = "it has other constants or attributes"
    if given is not None:
        graph = load(given)
        try:
            prepared = prepare(graph.copy())
        except OnnxqError as error:
            why = str(error)
        else:
            if model_identity(prepared.graph) == plan.model:
                return FloatModel(graph, prepared)
    beside = folder / f"{model_in(folder).stem}{FLOAT_MODEL}"
    changed = _prepared(beside, plan, prepare)
    if changed is not None:
        if given is not None and not _is_same(beside, given):
            print_warning(
                f"plan and parameters in {folder} belong to {beside}, whose constants improvements have changed: that "
                f"is taken instead of {given}"
            )
        return FloatModel(load(beside), changed)
    if given is not None:
        raise ConfigError(f"{given} is not the float model that the run in {folder} was made of: {why}")
    raise ConfigError(f"{which}: {beside} is of another run" if beside.is_file() else which)


def float_model_of(quantized: Path, given: Path, graph: Graph) -> Path:
    """The float model to hold a written model against: `given`, read as `graph`, or the one that lies beside it.

    A warning says where it is not the given one that the plan beside `quantized` belongs to.
    """
    folder = quantized.parent
    if not (folder / PLAN_NAME).is_file() or not _is_same(model_in(folder), quantized):
        return given  # written by somebody else, or moved away from its plan
    plan = read_plan(folder)
    if not plan.model:
        return given

    def prepare(graph: Graph) -> Prepared:
        return prepare_again(graph, plan, None, read_config(None), None)

    try:
        if model_identity(prepare(graph.copy()).graph) == plan.model:
            return given
    except OnnxqError as error:
        print_warning(f"whether {given} is the float model of {quantized} is not known: {error}")
        return given
    beside = folder / f"{quantized.stem}{FLOAT_MODEL}"
    if _prepared(beside, plan, prepare) is None:
        print_warning(f"{given} is not the float model of {quantized}: it has other constants or attributes")
        return given
    if not _is_same(beside, given):
        print_warning(
            f"{quantized} is compared with {beside}, whose constants improvements have changed, instead of {given}; "
            "--other-model compares it with that"
        )
    return beside


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _prepared(path: Path, plan: QuantPlan, prepare: Prepare) -> Prepared | None:
    """The prepared model of a file, if it is there and is the float model of a plan."""
    if not path.is_file():
        return None
    try:
        prepared = prepare(Graph.load(path))
    except OnnxqError:  # of another run
        return None
    return prepared if model_identity(prepared.graph) == plan.model else None
