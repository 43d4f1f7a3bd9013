"""Measurements as titles and rows of tables, for the terminal and for pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnxq.bench.interval import FEWEST, Interval
from onnxq.bench.result import Bench, EngineBench, Latency, LayerTime
from onnxq.glance import counted
from onnxq.runtime.engines import Computes

Titled = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, columns (those of numbers begin with >) and rows."""

MODEL_COLUMNS = ("model", ">ms", ">95 %", ">times as fast", ">95 %", ">integer", ">float", ">other", ">conversions")
LAYER_COLUMNS = ("layer", "operator", ">float ms", ">ms", ">times as fast", "kernels")
FLOAT_COLUMNS = (">ms", ">layers", "kernel", "why", "such as")

_CLOCKS = {"wall": "time on the wall", "processor": "processor time"}


def title_of(found: Bench, engine: EngineBench) -> str:
    """Under which conditions an engine was measured."""
    batch = "" if found.batch is None else f", first size of inputs {found.batch}"
    few = "" if engine.rounds >= FEWEST else f" (of fewer than {FEWEST} rounds: all that was measured)"
    return (
        f"{engine.engine} {engine.version}, {counted(found.threads, 'thread')}{batch}, {_CLOCKS[engine.clock]}, "
        f"{counted(engine.rounds, 'round')} in turns: medians, with 95 % confidence intervals{few}"
    )


def model_row(model: Latency) -> tuple[str, ...]:
    kinds = model.by_kind
    counts = (kinds[Computes.INTEGERS], kinds[Computes.FLOAT], kinds[Computes.OTHER], kinds[Computes.CONVERSION])
    ratio = model.times_as_fast
    return (
        model.model,
        ms_text(model.ms.median),
        span(model.ms),
        "" if ratio is None else f"{ratio.median:.2f}",
        "" if ratio is None else f"{ratio.low:.2f} .. {ratio.high:.2f}",
        *(("",) * 4 if not model.layers else map(str, counts)),
    )


def ms_text(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def span(interval: Interval) -> str:
    return f"{ms_text(interval.low)} .. {ms_text(interval.high)}"


def layer_rows(reference: Latency, model: Latency, ops: Mapping[str, str], engine: str) -> list[tuple[str, ...]]:
    """Layers of a quantized file beside those of the float model, the slowest first."""
    before = {(layer.node, layer.inserted): layer for layer in reference.layers}
    after = {(layer.node, layer.inserted): layer for layer in model.layers}
    keys = dict.fromkeys([*after, *before])
    slowest = sorted(keys, key=lambda key: -max(_ms(before.get(key)), _ms(after.get(key))))
    return [_layer_row(key, before.get(key), after.get(key), ops, engine) for key in slowest]


def _layer_row(
    key: tuple[str, bool], before: LayerTime | None, after: LayerTime | None, ops: Mapping[str, str], engine: str
) -> tuple[str, ...]:
    node, inserted = key
    quick = "" if before is None or after is None or not after.ms.median else f"{_ms(before) / _ms(after):.2f}"
    kernels = ", ".join(after.kernels) if after is not None else "none, or part of another"
    return (
        f"(by {engine}) {node}" if inserted else node,
        "" if inserted else ops.get(node, ""),
        "" if before is None else ms_text(before.ms.median),
        "" if after is None else ms_text(after.ms.median),
        "" if inserted else quick,
        kernels,
    )


def _ms(layer: LayerTime | None) -> float:
    return 0.0 if layer is None else layer.ms.median


def float_rows(model: Latency) -> list[tuple[str, ...]]:
    """What computes in float although the file is quantized, by kernel and reason, what takes longest first."""
    groups: dict[tuple[str, str], list[LayerTime]] = {}
    for layer in model.floating:
        why = re.sub(r"'[^']*'", "'...'", layer.why_float or "")
        groups.setdefault((", ".join(layer.kernels), why), []).append(layer)
    rows = sorted(groups.items(), key=lambda group: -_sum(group[1]))
    return [
        (ms_text(_sum(members)), str(len(members)), kernel, _reason(members, why), members[0].node)
        for (kernel, why), members in rows
    ]


def _sum(layers: Iterable[LayerTime]) -> float:
    return sum(layer.ms.median for layer in layers)


def _reason(members: Sequence[LayerTime], alike: str) -> str:
    """A reason with its names, where all have the same one."""
    said = {layer.why_float or "" for layer in members}
    return said.pop() if len(said) == 1 else alike


def tables(found: Bench) -> Iterator[Titled]:
    """All of a measurement: models, layers and what stayed float, engine by engine."""
    for engine in found.engines:
        reference, *others = engine.models
        yield title_of(found, engine), MODEL_COLUMNS, [model_row(model) for model in engine.models]
        if not reference.layers:
            continue
        for model in others or [reference]:
            yield (
                f"{engine.engine}: layers of {model.model}, the slowest first",
                LAYER_COLUMNS,
                layer_rows(reference, model, found.ops, engine.engine),
            )
            if model.floating:
                total = _sum(model.floating)
                title = f"{engine.engine}: layers of {model.model} that compute in float, {ms_text(total)} ms together"
                yield title, FLOAT_COLUMNS, float_rows(model)
