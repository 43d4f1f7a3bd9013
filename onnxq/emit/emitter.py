"""Emitter: one kind of output as a value. What it writes is declared, so that a run knows its files beforehand."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from onnxq.emit.observed import Observed
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.registry import Registry
from onnxq.types import Backend, QParamsTable, QuantPlan

Result = TypeVar("Result")


@dataclass(frozen=True)
class Emitted:
    """Files written (the model first, if there is one) and what was worth saying on the way.

    `warnings` say what is missing though nobody asked for that, such as a file that cannot hold the model's names.
    """

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class EmitRequest:
    """What an emitter is asked for: a quantized graph for a target, as files in `folder` named after `name`."""

    graph: Graph
    plan: QuantPlan
    qparams: QParamsTable
    backend: Backend
    folder: Path
    name: str

    @property
    def quantized(self) -> tuple[Graph, QuantPlan, QParamsTable]:
        """The three values that say what is computed, for functions that take them."""
        return self.graph, self.plan, self.qparams

    def path(self, end: str) -> Path:
        """Where the file is whose name ends so: ".onnx", "_clip_ranges.json"."""
        return self.folder / f"{self.name}{end}"


Write = Callable[[EmitRequest], Emitted]
"""Writes files; their paths are `request.path(end)`."""

ReadBack = Callable[[EmitRequest], Iterable[str]]
"""Reads what was written, and yields a line for everything that is not as the parameters say."""


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "write", _taking_a_request(self.write))
        if self.read_back is not None:
            object.__setattr__(self, "read_back", _taking_a_request(self.read_back))

    @property
    def __wrapped__(self) -> Write:
        return self.write

    def __call__(self, request: EmitRequest) -> Emitted:
        """Write the files; one that is not declared is an error of the emitter."""
        written = self.write(request)
        declared = self.file_names(request.name)
        for path in written.files if self.files is not None else ():
            if path.name.removesuffix(".data") not in declared and path.name not in declared:
                target = request.backend.name
                raise ConfigError(f"an emitter of {target} has written {path.name}, which is not in its `files`")
        return written

    def file_names(self, name: str) -> list[str]:
        """The files for a model of this name; weights of large models apart."""
        return [f"{name}{end}" for end in self.files or ()]


def _taking_a_request(function: Callable[[EmitRequest], Result]) -> Callable[[EmitRequest], Result]:
    """The function, which for one version may take what is in a request as six arguments."""
    if _takes(function, 1):
        return function
    called = getattr(function, "__qualname__", repr(function))
    fields = [field.name for field in dataclasses.fields(EmitRequest)]
    if not _takes(function, len(fields)):
        raise ConfigError(f"{called} cannot be part of an emitter: it takes one argument, an onnxq.emit.EmitRequest")
    warnings.warn(
        f"{called}({', '.join(fields)}) takes one argument now, an onnxq.emit.EmitRequest with these fields",
        DeprecationWarning,
        stacklevel=4,
    )

    @functools.wraps(function)
    def take(request: EmitRequest) -> Result:
        return function(*(getattr(request, field) for field in fields))

    return take


def _takes(function: Callable[..., object], arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # code that is not Python's and does not tell its signature
        return arguments == 1
    return True


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
        super().add(name, _taking_a_request(item))


EMITTERS = Emitters("emitter", "onnxq.emit", "onnxq.targets")
"""What writes files, by the names that backends have in their lists."""
READ_BACKS = ReadBacks("read-back")
"""By the name of an emitter: what reads its files again and compares them with the parameters."""
