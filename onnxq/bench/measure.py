"""`onnxq.bench`: a float model and quantized ones in turns, as a whole and kernel by kernel."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxq.bench.batches import in_batches
from onnxq.bench.interval import Interval
from onnxq.bench.layers import layers_of
from onnxq.bench.result import Bench, EngineBench, Latency, LayerTime
from onnxq.errors import ConfigError, OnnxqError
from onnxq.graph import Graph
from onnxq.json_file import read_object
from onnxq.mixed_precision.evaluate import refuse_another
from onnxq.pipeline.artifacts import Result
from onnxq.pipeline.delivered import model_in
from onnxq.pipeline.report import NO_KERNEL
from onnxq.progress import Progress
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.runtime.engines import ENGINES, Computes, Engine, Kernel, Opened, installed
from onnxq.runtime.feeds import Feed
from onnxq.runtime.random_data import random_dataset, random_shapes
from onnxq.runtime.timing import Turn, in_rounds
from onnxq.temporary import temporary_folder
from onnxq.types import QuantPlan

ROUNDS, WARM_UP, SECONDS = 30, 3, 30.0
"""Rounds, first runs that do not count, and seconds of each engine; kernels take as much again at most."""

SHORTEST_TURN = 0.01
"""Seconds: a model that takes less is run several times in its turn."""

FEEDS = 8
"""Samples that rounds take in turns, all models the same one."""

MOST_EVENTS = 100_000
"""Times of kernels that are asked for: onnxruntime keeps a million, in text."""

UNKNOWN = "no plan lies beside the file, so why is not known: name the folder of the run"
NOT_PLANNED = "no node of the plan: the engine or the file has made it of others"


@dataclass(frozen=True)
class Contender:
    """A quantized model; `plan` says why nodes of it are float."""

    called: str
    path: Path
    plan: QuantPlan | None = None

    @classmethod
    def of(cls, given: object) -> Contender:
        """A file, the folder of a run, a Result of onnxq, or a Contender."""
        if isinstance(given, Contender):
            return given
        if isinstance(given, Result):
            return cls(str(given.model), given.model, given.plan)
        path = Path(str(given))
        model = model_in(path) if path.is_dir() else path
        plan = model.with_name("plan.json")
        if model != model_in(model.parent) or not plan.is_file():
            return cls(str(model), model)
        return cls(str(model), model, QuantPlan.from_json(read_object(plan, "plan")))


@dataclass
class _Measured:
    """What was measured in one engine: seconds of a run, a row for each round."""

    whole: np.ndarray
    kernels: list[list[Kernel]] = field(default_factory=list)


def bench(
    model: Path | str | onnx.ModelProto | Graph,
    *quantized: Any,
    data: Any = None,
    engines: Sequence[str] | None = None,
    threads: int = 1,
    batch: int | None = None,
    rounds: int = ROUNDS,
    warm_up: int = WARM_UP,
    seconds: float = SECONDS,
    wall: bool | None = None,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    preprocess: Any = None,
    layers: bool = True,
    progress: Progress | None = None,
) -> Bench:
    """Measure how long a float model and quantized ones take, in turns, and what each layer takes.

    `quantized` are files, folders of runs, or Results. `data` is what `onnxq.quantize` takes; without it inputs are
    random numbers (of `shapes`, where sizes are free). `batch` is the first size of every input, where the model leaves
    it free. `engines` are those that are installed, unless named. With one thread its processor time counts, which
    others on the machine hardly change; with several, or with `wall`, it is the time that passes.
    """
    _check(threads=threads, batch=batch, rounds=rounds, warm_up=warm_up)
    original = _graph(model)
    contenders = [Contender.of(one) for one in quantized]
    for one in contenders:
        refuse_another(one.called, Graph.load(one.path), original)
    feeds, notes = _feeds(original, data, batch, shapes, preprocess)
    told: list[str] = list(notes)
    measured = []
    with temporary_folder() as folder:
        first = Contender(*_written(model, original, folder))
        for name in engines or installed():
            if ENGINES.get(name).version() is None:
                raise ConfigError(f"{name} is not installed here: pip install {name}")
            work = _Work(name, ENGINES.get(name), threads, bool(wall) or threads > 1, rounds, warm_up, seconds)
            try:
                found = work.measured([first, *contenders], feeds, folder, layers=layers, progress=progress)
            except OnnxqError as error:
                if name == (engines or installed())[0] or engines:
                    raise
                told.append(f"{name} was left out: {error}")
                continue
            told += work.notes
            measured.append(_result(work, found, [first, *contenders], original))
    size = next((array.shape[0] for array in feeds[0].values() if array.ndim), None)
    return Bench(threads, size, tuple(measured), {str(n.name): str(n.op) for n in original.gs.nodes}, tuple(told))


def _check(*, threads: int, batch: int | None, rounds: int, warm_up: int) -> None:
    given = {"threads": threads, "batch": batch, "rounds": rounds, "warm_up": warm_up}
    for name, value in given.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name} is at least 1, got {value}")


def _graph(model: Path | str | onnx.ModelProto | Graph) -> Graph:
    if isinstance(model, Graph):
        return model
    return Graph.from_model(model) if isinstance(model, onnx.ModelProto) else Graph.load(model)


def _written(model: object, graph: Graph, folder: Path) -> tuple[str, Path]:
    """The float model as a file, and what to call it."""
    if isinstance(model, (str, Path)):
        return str(model), Path(model)
    path = folder / "float.onnx"
    graph.save(path, given_names=True)
    return "float", path


def _feeds(
    graph: Graph, data: Any, batch: int | None, shapes: Mapping[str, Sequence[int | str]] | None, preprocess: Any
) -> tuple[list[Feed], tuple[str, ...]]:
    infos = input_infos(graph)
    if batch is not None:
        for info in infos:
            if info.shape and isinstance(info.shape[0], int) and info.shape[0] != batch:
                raise ConfigError(
                    f"input '{info.name}' {info} has a fixed first size of {info.shape[0]}: a batch of {batch} needs a "
                    "model whose first size is free"
                )
    if data is not None:
        opened = (
            data
            if isinstance(data, Dataset) and batch is None
            else open_dataset(data, infos, batch=batch, limit=FEEDS * (batch or 1), preprocess=preprocess)
        )
        feeds = list(islice(opened if batch is None else in_batches(opened, batch), FEEDS))
        if not feeds:
            raise ConfigError(f"the data holds fewer samples than a batch of {batch}" if batch else "the data is empty")
        return feeds, opened.notes
    sizes, notes = random_shapes(graph, shapes)
    if batch is not None:
        sizes = {name: (batch, *shape[1:]) if shape else shape for name, shape in sizes.items()}
    return list(random_dataset(infos, FEEDS, shapes=sizes)), ("inputs are random numbers: -d has real ones", *notes)


class _Work:
    """The measurements of one engine."""

    def __init__(
        self, name: str, engine: Engine, threads: int, wall: bool, rounds: int, warm_up: int, seconds: float
    ) -> None:
        self.name, self.engine, self.threads, self.wall = name, engine, threads, wall
        self.rounds, self.warm_up, self.seconds = rounds, warm_up, seconds
        self.notes: list[str] = []

    def measured(
        self,
        models: Sequence[Contender],
        feeds: Sequence[Feed],
        folder: Path,
        *,
        layers: bool,
        progress: Progress | None,
    ) -> _Measured:
        opened = [self.engine.open(one.path, self.threads, None) for one in models]
        whole = self._in_rounds(opened, feeds, self.rounds, progress)
        del opened
        if len(whole) < self.rounds:
            self.notes.append(f"{self.name}: {len(whole)} of {self.rounds} rounds fit into {self.seconds:g} seconds")
        found = _Measured(whole)
        if layers:
            found.kernels = self._kernels(models, feeds, folder, progress)
        return found

    def _in_rounds(
        self,
        opened: Sequence[Opened],
        feeds: Sequence[Feed],
        rounds: int,
        progress: Progress | None,
        shortest: float = SHORTEST_TURN,
    ) -> np.ndarray:
        current = [feeds[0]]
        timer = time.perf_counter if self.wall else self.engine.timer

        def before(number: int) -> None:
            current[0] = feeds[number % len(feeds)]
            if progress is not None:
                progress(self.name, number, rounds)

        turns = [Turn(lambda one=one: one.run(current[0]), timer) for one in opened]  # type: ignore[misc]
        return in_rounds(
            turns, seconds=self.seconds, rounds=rounds, warm_up=self.warm_up, shortest=shortest, before=before
        )

    def _kernels(
        self, models: Sequence[Contender], feeds: Sequence[Feed], folder: Path, progress: Progress | None
    ) -> list[list[Kernel]]:
        """The kernels of every model with their times; each run counts, but for the first ones."""
        opened = []
        for number, one in enumerate(models):
            inside = folder / f"{self.name}-{number}"
            inside.mkdir()
            opened.append(self.engine.open(one.path, self.threads, inside))
        nodes = max(len(Graph.load(one.path).gs.nodes) for one in models)
        rounds = max(1, min(self.rounds, MOST_EVENTS // (2 * max(1, nodes))))
        self._in_rounds(opened, feeds, rounds, progress, shortest=0.0)
        return [one.kernels() for one in opened]


def _result(work: _Work, found: _Measured, models: Sequence[Contender], original: Graph) -> EngineBench:
    times = found.whole
    latencies = []
    for number, one in enumerate(models):
        quotients = times[:, 0] / np.maximum(times[:, number], 1e-9)
        rows: tuple[LayerTime, ...] = ()
        if found.kernels:
            kernels = [_counted(kernel, work.warm_up) for kernel in found.kernels[number]]
            rows = _rows(kernels, original, one.plan, work.name, quantized=number > 0)
        latencies.append(
            Latency(
                one.called,
                Interval.of((1000 * times[:, number]).tolist()),
                None if number == 0 else Interval.of(quotients.tolist()),
                rows,
            )
        )
    clock = "wall" if work.wall else "processor"
    version = work.engine.version() or ""
    return EngineBench(work.name, version, clock, len(times), tuple(latencies))


def _counted(kernel: Kernel, warm_up: int) -> Kernel:
    """The kernel without its first runs."""
    return replace(kernel, seconds=kernel.seconds[warm_up:])


def _rows(
    kernels: Sequence[Kernel], original: Graph, plan: QuantPlan | None, engine: str, *, quantized: bool
) -> tuple[LayerTime, ...]:
    """Layers in the order of their first kernels, then what the engine has inserted, by operator."""
    of = layers_of(kernels, original)
    layers: dict[str, list[Kernel]] = {}
    inserted: dict[str, list[Kernel]] = {}
    for number, kernel in enumerate(kernels):
        if number in of:
            layers.setdefault(of[number], []).append(kernel)
        else:
            inserted.setdefault(kernel.op, []).append(kernel)
    rows = [
        LayerTime(
            node,
            _together(members),
            tuple(dict.fromkeys(one.shown for one in members)),
            _kind(members),
            _why(node, members, plan, engine) if quantized and _kind(members) is Computes.FLOAT else None,
        )
        for node, members in layers.items()
    ]
    rows += [
        LayerTime(op, _together(members), (f"{len(members)} {op}",), _kind(members), inserted=True)
        for op, members in inserted.items()
    ]
    return tuple(rows)


def _kind(members: Iterable[Kernel]) -> Computes:
    """What several kernels compute in together: integers where one of them does."""
    kinds = Counter(one.computes for one in members)
    order = (Computes.INTEGERS, Computes.FLOAT, Computes.OTHER)
    return next((kind for kind in order if kinds[kind]), Computes.CONVERSION)


def _together(members: Sequence[Kernel]) -> Interval:
    """Milliseconds of some kernels in one run; runs that an engine has not kept of all of them are left out."""
    runs = min(len(one.seconds) for one in members)
    if not runs:
        return Interval(0.0, 0.0, 0.0)
    return Interval.of((1000 * np.sum([one.seconds[:runs] for one in members], axis=0)).tolist())


def _why(node: str, members: Sequence[Kernel], plan: QuantPlan | None, engine: str) -> str:
    if plan is None:
        return UNKNOWN
    names = [node, *(one.name for one in members)]
    for name in names:
        if name in plan.left_float:
            return str(plan.left_float[name])
    inside = any(name in plan.quantized or name in plan.fused for name in names)
    return f"{engine} {NO_KERNEL}" if inside else NOT_PLANNED
