"""What the gate knows about one model: where it comes from, what it is fed with, what is decided by its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from tools.bench.samples import Feed, Samples
from tools.zoo.decisions import Agreement
from tools.zoo.image_feeds import MakeFeeds
from tools.zoo.packages import Cache, Package, PackagedFile, Unavailable

CALIBRATION_SEED, HELD_SEED = 11, 12


class Kind(Enum):
    CLASSIFIER = "classifier"
    DETECTOR = "detector"
    TEXT_DETECTOR = "text detector"
    RECOGNIZER = "text recognizer"
    TRANSFORMER = "transformer"
    RECURRENT = "recurrent"
    AUDIO = "audio"


@dataclass(frozen=True)
class Part:
    """A range along an axis of an output that means something of its own."""

    output: str
    axis: int
    start: int
    end: int

    def of(self, values: np.ndarray) -> np.ndarray:
        return values[(slice(None),) * self.axis + (slice(self.start, self.end),)]

    def __str__(self) -> str:
        return f"{self.output}[{':, ' * self.axis}{self.start}:{self.end}]"


def parts(output: str, axis: int, *ends: int) -> tuple[Part, ...]:
    """Parts one behind the other, by the index behind the last of each."""
    return tuple(Part(output, axis, start, end) for start, end in zip((0, *ends), ends, strict=False))


@dataclass(frozen=True)
class Made:
    """A file that is made by a function, from a package or by training; kept in the cache."""

    make: Callable[[Cache, Path], None]
    of: Package | PackagedFile


@dataclass(frozen=True)
class InRepository:
    """A file of this repository, below its root."""

    path: str


Source = PackagedFile | Made | InRepository


@dataclass(frozen=True)
class ZooModel:
    """`choices` are outputs that are numbers of classes or tokens: an error of theirs in dB means nothing.

    A model whose outputs are all choices has no dB and is rated by its decisions alone. `most_samples` is for models
    that take long for each one.
    """

    name: str
    kind: Kind
    source: Source
    feeds: MakeFeeds
    decision: Agreement | None = None
    parts: tuple[Part, ...] = ()
    choices: tuple[str, ...] = ()
    most_samples: int = 64

    @property
    def origin(self) -> str:
        """How it is obtained, for the table."""
        source = self.source
        if isinstance(source, InRepository):
            return source.path
        if isinstance(source, Made):
            return f"made from {source.of.package if isinstance(source.of, PackagedFile) else source.of}"
        return f"{source.package}: {source.path}"

    def file(self, cache: Cache) -> Path:
        """The ONNX file; Unavailable where it cannot be had."""
        if isinstance(self.source, InRepository):
            return Path(__file__).parents[2] / self.source.path
        if isinstance(self.source, PackagedFile):
            return cache.file(self.source)
        path = cache.root / "made" / self.name / "model.onnx"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name("unfinished.onnx")
            try:
                self.source.make(cache, unfinished)
            except Unavailable:
                raise
            except Exception as error:  # libraries that write and train may fail in any way: a row of the table
                raise Unavailable(f"{self.origin}: {type(error).__name__}: {error}") from error
            unfinished.rename(path)
        return path

    def samples(self, cache: Cache, calibration: int, held: int) -> tuple[list[Feed], list[Feed]]:
        """Feeds to calibrate with and feeds that onnxq never sees; the same ones in each run."""
        make = self.feeds(cache, self.file(cache))
        most = self.most_samples
        seen = Samples(lambda random: make(random, False), min(calibration, most), CALIBRATION_SEED)
        unseen = Samples(lambda random: make(random, True), min(held, most), HELD_SEED)
        return list(seen), list(unseen)


def by_name(models: Sequence[ZooModel], names: Sequence[str]) -> list[ZooModel]:
    """The named ones in the order of the catalogue; all where none is named. A name that is not there is an error."""
    known = {model.name for model in models}
    if unknown := [name for name in names if name not in known]:
        raise Unavailable(f"no such model: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return [model for model in models if not names or model.name in names]
