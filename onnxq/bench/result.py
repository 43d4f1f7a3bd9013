"""What a measurement found: how long models take, and their kernels, with the layers of the float model as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from onnxq.bench.interval import Interval
from onnxq.glance import counted, notebook_html, short_name, short_repr
from onnxq.json_file import JsonObject
from onnxq.runtime.engines import Computes


@dataclass(frozen=True)
class LayerTime:
    """One layer of the float model, or what an engine has inserted, counted by operator.

    node       name in the float model; for what was inserted the operator
    ms         of its kernels in one run
    kernels    operators of the engine that compute it
    why_float  for a layer that computes in float in a quantized file: why
    inserted   by the engine: conversions between numbers or layouts, and what belongs to no node
    """

    node: str
    ms: Interval
    kernels: tuple[str, ...]
    computes: Computes
    why_float: str | None = None
    inserted: bool = False

    def to_json(self) -> JsonObject:
        return {
            "node": self.node,
            "ms": self.ms.to_json(4),
            "kernels": list(self.kernels),
            "computes": str(self.computes),
            **({} if self.why_float is None else {"why_float": self.why_float}),
            **({"inserted": True} if self.inserted else {}),
        }


@dataclass(frozen=True)
class Latency:
    """One model in one engine.

    ms             a run of it
    times_as_fast  the float model's time by its own, round by round; None for the float model
    layers         in the order of the kernels; empty where they were not measured
    """

    model: str
    ms: Interval
    times_as_fast: Interval | None
    layers: tuple[LayerTime, ...] = ()

    @property
    def floating(self) -> list[LayerTime]:
        """Layers that compute in float although the file is quantized, with the reason, the slowest first."""
        found = [layer for layer in self.layers if layer.why_float is not None]
        return sorted(found, key=lambda layer: -layer.ms.median)

    @property
    def by_kind(self) -> Counter[Computes]:
        """Layers and inserted kernels by what they compute in."""
        return Counter(layer.computes for layer in self.layers)

    def to_json(self) -> JsonObject:
        return {
            "model": self.model,
            "ms": self.ms.to_json(),
            "times_as_fast": None if self.times_as_fast is None else self.times_as_fast.to_json(4),
            "layers": [layer.to_json() for layer in self.layers],
        }

    def __repr__(self) -> str:
        ratio = "" if self.times_as_fast is None else f"{self.times_as_fast.median:.2f} times as fast"
        return short_repr("Latency", short_name(self.model), f"{self.ms.median:.3g} ms", ratio)


@dataclass(frozen=True)
class EngineBench:
    """All models in one engine; `models` begins with the float one. `clock` is "processor" or "wall"."""

    engine: str
    version: str
    clock: str
    rounds: int
    models: tuple[Latency, ...]

    def to_json(self) -> JsonObject:
        return {
            "engine": self.engine,
            "version": self.version,
            "clock": self.clock,
            "rounds": self.rounds,
            "models": [model.to_json() for model in self.models],
        }

    def __repr__(self) -> str:
        about = f"{self.engine} {self.version}, {self.clock} time"
        return short_repr("EngineBench", about, counted(self.rounds, "round"), counted(len(self.models), "model"))


@dataclass(frozen=True)
class Bench:
    """Latencies of a float model and of others made of it; `ops` has the operator of each node of the float model."""

    threads: int
    batch: int | None
    engines: tuple[EngineBench, ...]
    ops: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        return {
            "threads": self.threads,
            "batch": self.batch,
            "interval": "median, with its 95 % confidence interval from the order of the rounds",
            "engines": [engine.to_json() for engine in self.engines],
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        facts = [
            f"{short_name(model.model)} {model.times_as_fast.median:.2f} times as fast in {engine.engine}"
            for engine in self.engines
            for model in engine.models
            if model.times_as_fast is not None
        ]
        alone = [f"{one.models[0].ms.median:.3g} ms in {one.engine}" for one in self.engines]
        return short_repr("Bench", "", counted(self.threads, "thread"), *(facts or alone))

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each model in each engine."""
        from onnxq.bench.text import MODEL_COLUMNS, model_row, title_of

        rows = [(one.engine, *model_row(model)) for one in self.engines for model in one.models]
        titles = "; ".join(title_of(self, one) for one in self.engines)
        return notebook_html(titles, (), ("engine", *(name.lstrip(">") for name in MODEL_COLUMNS)), rows)
