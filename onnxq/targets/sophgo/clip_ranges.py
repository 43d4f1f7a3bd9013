"""The two JSON files beside tpu-mlir's tables: every range with its bits, and which row belongs to which weight."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.tables import Row, differs, rows
from onnxq.files import write_json
from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.numerics import float_max
from onnxq.targets.sophgo.modes import operators
from onnxq.targets.sophgo.names import names_of, operator_names, weight_uses
from onnxq.targets.sophgo.ranges import ranges
from onnxq.types import QuantPlan, QuantSpec

_PRECISION = 1e-12


def write_clip_ranges(request: EmitRequest) -> Emitted:
    """Write `<name>_clip_ranges.json`: all ranges and weight steps under the names that tpu-mlir uses."""
    path = request.path("_clip_ranges.json")
    found: JsonObject = {}
    for item in ranges(*request.quantized, request.backend):
        threshold, low, high = item.own
        entry = {"threshold": threshold, "min": low, "max": high, **_kind(item.spec)}
        found[names_of(request.graph, item.tensor)[0]] = entry | {"ori_name": item.tensor}
    for row, weight in _weights(request.graph, request.plan).items():
        parameters = request.qparams[weight]
        steps = [float(str(value)) for value in parameters.scale.reshape(-1)]
        zeros = parameters.zero_point.reshape(-1).tolist()
        found[row] = {"step": steps, "zero_point": zeros, **_kind(parameters.spec), "ori_name": weight}
    write_json(path, {"sophgo_tpu": found, "w_qscheme": "", "a_qscheme": ""})
    return Emitted((path,))


def _kind(spec: QuantSpec) -> JsonObject:
    kind = "int" if spec.signed else "uint"
    return {"bit": spec.bits, "type": kind if spec.evenly_spaced else spec.dtype}


def _weights(graph: Graph, plan: QuantPlan) -> dict[str, str]:
    """Name of the row -> initializer."""
    return {
        f"{operator.names[0]}_weight": operator.weight
        for operator in operators(graph, plan)
        if operator.weight is not None
    }


def check_clip_ranges(request: EmitRequest) -> Iterator[str]:
    """Compare every number with the parameters; ranges that follow from others, with the formulas for them."""
    path = request.path("_clip_ranges.json")
    read = json.loads(path.read_text(encoding="utf-8"))["sophgo_tpu"]
    wanted: dict[str, JsonObject] = {}
    for item in ranges(*request.quantized, request.backend):
        threshold, low, high = item.own
        numbers = {"threshold": threshold, "min": low, "max": high, **_kind(item.spec), "ori_name": item.tensor}
        wanted[names_of(request.graph, item.tensor)[0]] = numbers
    for row in rows(*request.quantized):
        if row.qparams.spec.bits <= 8:
            wanted[names_of(request.graph, row.tensor)[0]] = _entry_of(row)
    for row in rows(*request.quantized, role="weight"):
        entry = {"step": row.qparams.scale, "zero_point": row.qparams.zero_point, **_format_of(row)}
        wanted |= {f"{key}_weight": entry for key in _first_names(request.graph, request.plan, row.tensor)}
    for key, numbers in wanted.items():
        entry = read.pop(key, None)
        if entry is None:
            yield f"{path.name}: there is no entry '{key}'"
            continue
        for what, value in numbers.items():
            same = entry.get(what) == value if isinstance(value, str) else _equal(entry.get(what), value)
            if not same:
                yield f"{path.name}: '{what}' of '{key}' is {entry.get(what)}, the parameters say {value}"
    for key in read:
        yield f"{path.name}: the entry '{key}' belongs to nothing in the model"


def _equal(read: Any, wanted: Any) -> bool:
    return read is not None and not differs(read, [float(str(value)) for value in _flat(wanted)], _PRECISION)


def _flat(value: Any) -> Any:
    return value.reshape(-1) if hasattr(value, "reshape") else [value]


def _entry_of(row: Row) -> JsonObject:
    """What an activation's entry must say: its bounds, and the bound by which tpu-mlir finds the scale."""
    spec = row.qparams.spec
    if not spec.evenly_spaced:
        threshold = float(row.qparams.scale) * float_max(spec.dtype)
    elif spec.symmetric:
        threshold = float(row.qparams.scale) * (2 ** (spec.bits - int(spec.signed)) - 1)
    else:
        threshold = max(-float(row.low), float(row.high))
    return {"threshold": threshold, "min": float(row.low), "max": float(row.high), **_format_of(row)}


def _format_of(row: Row) -> JsonObject:
    dtype = row.qparams.spec.dtype
    kind = dtype if "fp" in dtype or "bf" in dtype else dtype.rstrip("0123456789")
    return {"bit": row.qparams.spec.bits, "type": kind, "ori_name": row.tensor}


def _first_names(graph: Graph, plan: QuantPlan, weight: str) -> list[str]:
    return [operator_names(graph, node, plan.fused)[0] for node in weight_uses(graph, weight)]


def write_weight_ids(request: EmitRequest) -> Emitted:
    """Write `<name>_weight_name_to_unique_id.json`: initializer -> row of the calibration table (the first)."""
    path = request.path("_weight_name_to_unique_id.json")
    found: dict[str, str] = {}
    for row, weight in _weights(request.graph, request.plan).items():
        found.setdefault(weight, row)
    write_json(path, found)
    return Emitted((path,))


def check_weight_ids(request: EmitRequest) -> Iterator[str]:
    """Every quantized weight of a layer has the row of one of the layers that read it, and nothing else is there."""
    path = request.path("_weight_name_to_unique_id.json")
    read = json.loads(path.read_text(encoding="utf-8"))
    for row in rows(*request.quantized, role="weight"):
        known = [f"{key}_weight" for key in _first_names(request.graph, request.plan, row.tensor)]
        found = read.pop(row.tensor, None)
        if known and found not in known:
            yield f"{path.name}: weight '{row.tensor}' belongs to row {' or '.join(known)}, the file says {found!r}"
        elif not known and found is not None:
            yield f"{path.name}: '{row.tensor}' is no weight of a layer, the file says {found!r}"
    for weight in read:
        yield f"{path.name}: '{weight}' is no quantized weight"


EMITTERS.add(
    "sophgo_clip_ranges",
    Emitter(write_clip_ranges, files=("_clip_ranges.json",), read_back=check_clip_ranges, observed="range"),
)
EMITTERS.add(
    "sophgo_weight_ids",
    Emitter(write_weight_ids, files=("_weight_name_to_unique_id.json",), read_back=check_weight_ids),
)
