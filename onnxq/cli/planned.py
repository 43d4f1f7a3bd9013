"""A model taken up again with a plan made earlier: the plan's backend, the same passes, nothing mixed up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.cli.consistency import check_references
from onnxq.config import Config, read_config
from onnxq.config.settings import PLACING
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.observers import make_observer
from onnxq.place.legal import check_every_operator_has_a_rule, check_plan
from onnxq.session.prepare import make_plan
from onnxq.session.session import Session, open_session
from onnxq.targets import file_of_backend, get_backend, registered_backend
from onnxq.types import Backend, QuantPlan

if TYPE_CHECKING:
    from onnxq.cli.options import Given


def backend_of(plan: QuantPlan, given: str | None) -> Backend:
    """The backend that a plan was made for; `given` is needed when that one is in a file of the user's."""
    if given is None:
        file = file_of_backend(plan.backend)
        if file is not None:
            raise ConfigError(
                f"the plan names the file {file} as its backend, and a plan never runs code: if you trust that file, "
                f"give it yourself with -b {file}, and let the plan say the name that it registers"
            )
        try:
            return registered_backend(plan.backend)
        except ConfigError as error:
            raise ConfigError(f"{error}. The plan was made for it: give its file with -b or --plugin") from None
    backend = get_backend(given)
    if backend.name != plan.backend:
        raise ConfigError(
            f"the plan was made for backend '{plan.backend}', not for '{backend.name}': leave -b out, or place again"
        )
    return backend


def settings_of(plan: QuantPlan, config: Config) -> Config:
    """What the plan was made with, and on top of it what is said now."""
    return read_config({**plan.config, **config.model_dump(exclude_unset=True)})


def planned_session(
    model: Path | Graph, plan: QuantPlan, backend: str | None, config: Config, passes: Sequence[str] | None
) -> Session:
    """The session that a plan was made in: what it was made with holds again, unless `config` says otherwise."""
    return open_session(model, backend=backend_of(plan, backend), config=settings_of(plan, config), passes=passes or ())


def check_fits(session: Session, plan: QuantPlan, *, strict: bool = False) -> None:
    """Refuse a plan for another model, other passes or beyond the limits.

    With `strict` operators without a rule are refused too.
    """
    prepared = session.prepared
    unknown = [name for name in plan.placements if not prepared.graph.has_tensor(name)]
    if unknown:
        raise ConfigError(
            f"the plan quantizes {len(unknown)} tensors that this model does not have, such as '{unknown[0]}': it was "
            "made for another model, or with another --pass"
        )
    if not plan.placements:
        raise ConfigError("the plan quantizes no tensor, so there is nothing to do")
    listed = {*plan.quantized, *plan.fused, *plan.left_float}
    present = {node.name for node in prepared.graph.nodes()}
    for name in sorted(listed ^ present):
        problem = "lists node '{}', which the model does not have" if name in listed else "does not list node '{}'"
        raise ConfigError(f"the plan {problem.format(name)}: it was made for another model, or its nodes were edited")
    check_references(prepared.graph, plan)
    check_plan(plan, prepared.backend)
    if strict:  # a file has the texts of reasons without their codes
        placed = make_plan(prepared, unlike=plan.unlike)
        known = {node: reason for node, reason in placed.left_float.items() if node in plan.left_float}
        check_every_operator_has_a_rule(prepared.graph, replace(plan, left_float=known), prepared.backend)


def refuse_placing(given: Given, *but: str, rest: str = "") -> None:
    """Refuse what was given with --set for a plan that is made already, where it would have no effect."""
    for one in given.assignments:
        if one.path[0] in PLACING and one.path[0] not in but and one.by_key:
            raise ConfigError(f"{one.said} belongs to placing: give it to 'onnxq place'{rest}")


def with_observers(plan: QuantPlan, observer: str | None, weight_observer: str | None) -> QuantPlan:
    """The plan with other observers for activations or weights."""
    chosen = {"activation": observer, "output": observer, "weight": weight_observer}
    for text in chosen.values():
        if text is not None:
            make_observer(text)  # a wrong name is an error now, not after the model was run
    placements = {
        name: replace(placement, observer=chosen.get(placement.role) or placement.observer)
        for name, placement in plan.placements.items()
    }
    return replace(plan, placements=placements)
