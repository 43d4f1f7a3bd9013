"""Emitter: one kind of output as a value. What it writes is declared, so that a run knows its files beforehand."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from onnxq.emit.observed import Observed
from onnxq.errors import ConfigError
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


class Write(Protocol):
    """Writes files into `folder`, named after `name`."""

    def __call__(
        self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
    ) -> Emitted: ...


class ReadBack(Protocol):
    """Reads what was written, and yields a line for everything that is not as the parameters say."""

    def __call__(
        self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
    ) -> Iterator[str]: ...


@dataclass(frozen=True)
class Emitter:
    """One kind of output.

    write      the function that writes it; the first line of its docstring is shown by `onnxq list`
    files      the ends of its files' names, behind the model's: ".onnx", "_clip_ranges.json". The weights of a large
               model may lie beside it in a file with ".data" behind its name. None: not known beforehand
    read_back  how the files are held against the parameters after writing; models need none, since they are run
    observed   what the files say of a tensor that is only observed
    """

    write: Write
    files: tuple[str, ...] | None
    read_back: ReadBack | None = None
    observed: Observed = "float"

    @property
    def __wrapped__(self) -> Write:
        return self.write

    def __call__(
        self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
    ) -> Emitted:
        """Write the files; one that is not declared is an error of the emitter."""
        written = self.write(graph, plan, qparams, backend, folder, name)
        declared = self.file_names(name)
        for path in written.files if self.files is not None else ():
            if path.name.removesuffix(".data") not in declared and path.name not in declared:
                raise ConfigError(f"an emitter of {backend.name} has written {path.name}, which is not in its `files`")
        return written

    def file_names(self, name: str) -> list[str]:
        """The files for a model of this name; weights of large models apart."""
        return [f"{name}{end}" for end in self.files or ()]


class Emitters(Registry[Emitter]):
    """Emitters by name. A plain function is taken too, for one version: what it writes is not known beforehand."""

    def add(self, name: str, item: Emitter | Write) -> None:
        if not isinstance(item, Emitter):
            warnings.warn(
                f"emitter '{name}' is a plain function: register Emitter(function, files=(...)), which says what it "
                "writes, so that no file is overwritten by surprise",
                DeprecationWarning,
                stacklevel=3,
            )
            item = Emitter(item, files=None)
        super().add(name, item)


class ReadBacks(Registry[ReadBack]):
    """Read-backs of emitters that are plain functions, for one version."""

    def add(self, name: str, item: ReadBack) -> None:
        warnings.warn(
            f"the read-back of emitter '{name}' is part of it: Emitter(function, files=(...), read_back=function)",
            DeprecationWarning,
            stacklevel=3,
        )
        super().add(name, item)


EMITTERS = Emitters("emitter", "onnxq.emit", "onnxq.targets")
READ_BACKS = ReadBacks("read-back")
