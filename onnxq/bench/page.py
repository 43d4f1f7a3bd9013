"""A measurement as the page of a run holds it."""

from __future__ import annotations

from onnxq.bench.result import Bench, EngineBench, LayerTime
from onnxq.bench.text import title_of
from onnxq.json_file import JsonObject


def latency_json(found: Bench, number: int) -> JsonObject:
    """What a page shows of the `number`-th model beside the float one: times of both, and of their layers."""
    return {"engines": [_engine_json(found, engine, number) for engine in found.engines]}


def _engine_json(found: Bench, engine: EngineBench, number: int) -> JsonObject:
    reference, model = engine.models[0], engine.models[number]
    before = {(layer.node, layer.inserted): layer for layer in reference.layers}
    after = {(layer.node, layer.inserted): layer for layer in model.layers}
    return {
        "title": title_of(found, engine),
        "engine": engine.engine,
        "float": reference.ms.to_json(4),
        "file": model.ms.to_json(4),
        "times_as_fast": None if model.times_as_fast is None else model.times_as_fast.to_json(4),
        "layers": [
            [
                node,
                _ms(before.get((node, inserted))),
                _ms(after.get((node, inserted))),
                _said(after.get((node, inserted))),
                inserted,
            ]
            for node, inserted in dict.fromkeys([*after, *before])
        ],
        "stayed_float": [
            {"node": layer.node, "ms": _ms(layer), "kernels": list(layer.kernels), "why": layer.why_float}
            for layer in model.floating
        ],
    }


def _ms(layer: LayerTime | None) -> float | None:
    return None if layer is None else float(f"{layer.ms.median:.4g}")


def _said(layer: LayerTime | None) -> str | None:
    return None if layer is None else ", ".join(layer.kernels)
