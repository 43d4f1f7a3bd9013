"""(graph, plan, qparams) -> files. An emitter writes one kind of output; backends name the ones they want."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onnxq.emit.emitter import EMITTERS, READ_BACKS, EmitRequest, Emitted, Emitter, ReadBack, Write
from onnxq.emit.observed import plan_for
from onnxq.errors import CheckFailed
from onnxq.graph import Graph
from onnxq.types import Backend, QParamsTable, QuantPlan
from onnxq.types.backend import check_backend

__all__ = [
    "EMITTERS",
    "READ_BACKS",
    "EmitRequest",
    "Emitted",
    "Emitter",
    "ReadBack",
    "Write",
    "emit",
    "file_names",
    "read_back",
]


def emit(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str) -> Emitted:
    """Run all emitters of a backend; the files appear in `folder`, which must exist.

    Tensors that are only observed stay float. Tables are read back: CheckFailed says where they do not say what the
    parameters say.
    """
    check_backend(backend)
    request = EmitRequest(graph, plan, qparams, backend, folder, name)
    files: list[Path] = []
    notes: list[str] = []
    warnings: list[str] = []
    with graph.unchanging():
        for emitter in map(EMITTERS.get, backend.emitters):
            written = emitter(_as_told(emitter, request))
            files.extend(written.files)
            notes.extend(written.notes)
            warnings.extend(written.warnings)
        problems = read_back(graph, plan, qparams, backend, folder, name)
    if problems:
        shown = "\n  ".join(problems[:10]) + (f"\n  ... and {len(problems) - 10} more" if len(problems) > 10 else "")
        raise CheckFailed(f"tables read back from disk differ from the parameters:\n  {shown}")
    return Emitted(tuple(files), tuple(notes), tuple(warnings))


def file_names(backend: Backend, name: str) -> list[str]:
    """The files that a backend's emitters declare, for a model of this name; weights of large models apart."""
    return list(dict.fromkeys(file for known in backend.emitters for file in EMITTERS.get(known).file_names(name)))


def read_back(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> list[str]:
    """What the tables of a backend do not say as the parameters do; empty when all is well."""
    request = EmitRequest(graph, plan, qparams, backend, folder, name)
    problems: list[str] = []
    for known in backend.emitters:
        emitter = EMITTERS.get(known)
        check = emitter.read_back or (READ_BACKS.get(known) if known in READ_BACKS else None)
        if check is not None:
            problems += check(_as_told(emitter, request))
    return problems


def _as_told(emitter: Emitter, request: EmitRequest) -> EmitRequest:
    """The request with the plan that this emitter has to carry out."""
    return replace(request, plan=plan_for(emitter.observed, request.graph, request.plan))
