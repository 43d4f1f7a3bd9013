"""Parameters improved or corrected after calibration. A refinement is one file; backends name the ones they want."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from onnxq.graph import Graph
from onnxq.registry import Registry
from onnxq.types import Backend, QParamsTable, QuantPlan


class Refined(NamedTuple):
    """New parameters, a line for each thing that changed, and what is worth a look."""

    qparams: QParamsTable
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Refinement(Protocol):
    """Changes parameters, never the graph or the plan; the table is its own, to change or to replace."""

    def __call__(self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined: ...


REFINEMENTS: Registry[Refinement] = Registry("refinement", "onnxq.targets")


def refine(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Run all refinements of a backend, in order; tensors that are only observed take no part.

    The table is used up: refinements may change it. What stands behind a colon of a name is for the refinement itself
    to read: rules that are left out.
    """
    plan = plan.active
    notes: list[str] = []
    warnings: list[str] = []
    with graph.unchanging():
        for name in backend.refinements:
            step = REFINEMENTS.get(name.partition(":")[0])(graph, plan, qparams, backend)
            qparams = step.qparams
            notes.extend(step.notes)
            warnings.extend(step.warnings)
    return Refined(qparams, tuple(notes), tuple(warnings))
