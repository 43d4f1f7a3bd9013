"""(graph, plan, qparams) -> files. An emitter writes one kind of output; backends name the ones they want."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from onnxq.emit.observed import plan_for
from onnxq.errors import CheckFailed
from onnxq.graph import Graph
from onnxq.registry import Registry
from onnxq.types import Backend, QParamsTable, QuantPlan


@dataclass(frozen=True)
class Emitted:
    """Files written (the model first, if there is one) and what was worth saying on the way.

    `warnings` say what is missing though nobody asked for that, such as a file that cannot hold the model's names.
    """

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Emitter(Protocol):
    """Writes files into `folder`, named after `name`."""

    def __call__(
        self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
    ) -> Emitted: ...


class ReadBack(Protocol):
    """Reads what the emitter of the same name wrote, and yields a line for everything that is not as it should be."""

    def __call__(
        self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
    ) -> Iterator[str]: ...


EMITTERS: Registry[Emitter] = Registry("emitter", "onnxq.emit", "onnxq.targets")
READ_BACKS: Registry[ReadBack] = Registry("read-back", "onnxq.emit", "onnxq.targets")
"""Emitter name -> how its files are read again after writing; emitters of models need none."""


def emit(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str) -> Emitted:
    """Run all emitters of a backend; the files appear in `folder`, which must exist.

    Tensors that are only observed stay float. Tables are read back: CheckFailed says where they do not say what the
    parameters say.
    """
    files: list[Path] = []
    notes: list[str] = []
    warnings: list[str] = []
    with graph.unchanging():
        for emitter in backend.emitters:
            written = EMITTERS.get(emitter)(graph, plan_for(emitter, graph, plan), qparams, backend, folder, name)
            files.extend(written.files)
            notes.extend(written.notes)
            warnings.extend(written.warnings)
        problems = read_back(graph, plan, qparams, backend, folder, name)
    if problems:
        shown = "\n  ".join(problems[:10]) + (f"\n  ... and {len(problems) - 10} more" if len(problems) > 10 else "")
        raise CheckFailed(f"tables read back from disk differ from the parameters:\n  {shown}")
    return Emitted(tuple(files), tuple(notes), tuple(warnings))


def file_names(backend: Backend, name: str) -> list[str]:
    """The files that a backend's emitters say they write, for a model of this name; weights of large models apart."""
    found: dict[str, None] = {}
    for emitter in backend.emitters:
        found.update((f"{name}{end}", None) for end in _FILE.findall(inspect.getdoc(EMITTERS.get(emitter)) or ""))
    return [file for file in found if not file.endswith(".data")]


_FILE = re.compile(r"`<name>([^`]*)`")
"""How the docstrings of emitters name their files."""


def read_back(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> list[str]:
    """What the tables of a backend do not say as the parameters do; empty when all is well."""
    problems: list[str] = []
    for emitter in backend.emitters:
        if emitter in READ_BACKS:
            wanted = plan_for(emitter, graph, plan)
            problems += READ_BACKS.get(emitter)(graph, wanted, qparams, backend, folder, name)
    return problems
