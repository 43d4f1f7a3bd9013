"""The programs that run models on this machine, and what they say about each kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from onnxq.registry import Registry
from onnxq.runtime.feeds import Feed


class Computes(StrEnum):
    """What a kernel computes in."""

    INTEGERS = "integers"
    FLOAT = "float"
    CONVERSION = "conversion"  # between them, or between layouts
    OTHER = "other"


@dataclass(frozen=True)
class Kernel:
    """One kernel of the main graph, as an engine calls it.

    shown     what to call its kind, where the operator alone says less
    made_of   nodes or tensors of the file that it computes, as far as the engine says so
    seconds   how long it took in each run; empty where that was not looked at
    """

    name: str
    op: str
    computes: Computes
    shown: str = ""
    made_of: tuple[str, ...] = ()
    seconds: tuple[float, ...] = ()


class Opened(Protocol):
    """A model that an engine is ready to run."""

    def run(self, feed: Feed) -> None: ...

    def kernels(self) -> list[Kernel]:
        """All kernels in order, with the times of every run since the model was opened for a profile."""
        ...


class Open(Protocol):
    """Opens a file of ONNX; with a folder for its files, each kernel is timed too."""

    def __call__(self, model: Path, threads: int, profile: Path | None) -> Opened: ...


@dataclass(frozen=True)
class Engine:
    """A program that runs models.

    version   its version; None where it is not installed
    timer     the processor time of what one thread of it computes
    """

    open: Open
    version: Callable[[], str | None]
    timer: Callable[[], float]


ENGINES: Registry[Engine] = Registry("engine", "onnxq.bench", "onnxq.targets")


def installed() -> list[str]:
    """The engines that are here, by the alphabet."""
    return [name for name in ENGINES.names() if ENGINES.get(name).version() is not None]
