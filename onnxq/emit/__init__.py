"""(graph, plan, qparams) -> files. An emitter writes one kind of output; backends name the ones they want."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from onnxq.graph import Graph
from onnxq.registry import Registry
from onnxq.types import Backend, QParamsTable, QuantPlan


@dataclass(frozen=True)
class Emitted:
    """Files written (the model first, if there is one) and what was worth saying on the way."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


class Emitter(Protocol):
    """Writes files into `folder`, named after `name`."""

    def __call__(
        self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
    ) -> Emitted: ...


EMITTERS: Registry[Emitter] = Registry("emitter", "onnxq.emit")


def emit(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str) -> Emitted:
    """Run all emitters of a backend; the files appear in `folder`, which must exist."""
    files: list[Path] = []
    notes: list[str] = []
    for emitter in backend.emitters:
        written = EMITTERS.get(emitter)(graph, plan, qparams, backend, folder, name)
        files.extend(written.files)
        notes.extend(written.notes)
    return Emitted(tuple(files), tuple(notes))
