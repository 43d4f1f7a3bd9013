"""Parameters improved or corrected after calibration. A refinement is one file; backends name the ones they want."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from onnxq.errors import CheckFailed
from onnxq.graph import Graph
from onnxq.registry import Registry
from onnxq.types import Backend, QParams, QParamsTable, QuantPlan
from onnxq.types.backend import check_backend

C = TypeVar("C", bound="Change")


class Refined(NamedTuple):
    """New parameters, a line for each thing that changed, and what is worth a look."""

    qparams: QParamsTable
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Change(Protocol):
    """Changes parameters, never the graph or the plan; the table is its own, to change or to replace."""

    def __call__(self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined: ...


@dataclass(frozen=True)
class Refinement:
    """One correction of parameters; `rules` are parts of it that a configuration may leave out by name.

    Which it leaves out is in `Backend.skipped_rules`, for the function to obey, and for the lint of the same rules.
    """

    change: Change
    rules: tuple[str, ...] = ()

    @property
    def __wrapped__(self) -> Change:
        return self.change


class Refinements(Registry[Refinement]):
    """Refinements by name; `register` takes a plain function, which has no rules of its own."""

    def register(self, name: str) -> Callable[[C], C]:  # type: ignore[override]
        def add(change: C) -> C:
            self.add(name, Refinement(change))
            return change

        return add


REFINEMENTS = Refinements("refinement", "onnxq.targets")
"""What makes parameters meet the constraints of a target, by the names that backends have in their lists."""


def check_ties(plan: QuantPlan, qparams: QParamsTable, maker: str) -> None:
    """Tied tensors have the scale and zero point of the one that they are tied to; else an error that names `maker`."""
    for placement in plan:
        if placement.tie is None:
            continue
        own, leader = qparams[placement.tensor], qparams[placement.tie]
        if not (np.array_equal(own.scale, leader.scale) and np.array_equal(own.zero_point, leader.zero_point)):
            raise CheckFailed(
                f"{maker} given '{placement.tensor}' {_shown(own)}, and '{placement.tie}' {_shown(leader)}, but the "
                "two share one quantizer: a change of one of them must be made to all that are tied together"
            )


def _shown(held: QParams) -> str:
    if held.scale.size > 1:
        return f"{held.scale.size} scales from {held.scale.min():.9g} to {held.scale.max():.9g}"
    return f"scale {held.scale.item():.9g} and zero point {held.zero_point.item()}"


def refine(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Run all refinements of a backend, in order; tensors that are only observed take no part.

    The table is used up: refinements may change it. Tensors that share a scale do so after each of them as well.
    """
    check_backend(backend)
    plan = plan.active
    notes: list[str] = []
    warnings: list[str] = []
    check_ties(plan, qparams, "the steps before all refinements have")
    with graph.unchanging():
        for name in backend.refinements:
            step = REFINEMENTS.get(name).change(graph, plan, qparams, backend)
            qparams = step.qparams
            check_ties(plan, qparams, f"refinement '{name}' has")
            notes.extend(step.notes)
            warnings.extend(step.warnings)
    return Refined(qparams, tuple(notes), tuple(warnings))
