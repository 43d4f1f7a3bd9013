"""The two JSON files beside tpu-mlir's tables: every range with its bits, and which row belongs to which weight."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnxq.emit import EMITTERS, READ_BACKS, Emitted
from onnxq.emit.sophgo_modes import operators
from onnxq.emit.sophgo_names import names_of
from onnxq.emit.sophgo_ranges import ranges
from onnxq.emit.tables import differs
from onnxq.files import write_json
from onnxq.graph import Graph
from onnxq.types import Backend, QParamsTable, QuantPlan, QuantSpec


def clip_ranges(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, Any]:
    """Operator -> threshold, bounds and bits; weights with their steps."""
    found: dict[str, Any] = {}
    for item in ranges(graph, plan, qparams):
        entry = {"threshold": item.threshold, "min": item.low, "max": item.high, **_kind(item.spec)}
        found[names_of(graph, item.tensor)[0]] = entry | {"ori_name": item.tensor}
    for name, weight in _weights(graph, plan).items():
        parameters = qparams[weight]
        steps = [float(str(value)) for value in parameters.scale.reshape(-1)]
        zeros = parameters.zero_point.reshape(-1).tolist()
        found[name] = {"step": steps, "zero_point": zeros, **_kind(parameters.spec), "ori_name": weight}
    return found


def _kind(spec: QuantSpec) -> dict[str, Any]:
    kind = "int" if spec.signed else "uint"
    return {"bit": spec.bits, "type": kind if spec.grid == "affine" else spec.dtype}


def _weights(graph: Graph, plan: QuantPlan) -> dict[str, str]:
    """Name of the row -> initializer."""
    return {
        f"{operator.names[0]}_weight": operator.weight
        for operator in operators(graph, plan, "F32")
        if operator.weight is not None
    }


@EMITTERS.register("sophgo_clip_ranges")
def write_clip_ranges(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Emitted:
    """Write `<name>_clip_ranges.json`: all ranges and weight steps under the names that tpu-mlir uses."""
    path = folder / f"{name}_clip_ranges.json"
    write_json(path, {"sophgo_tpu": clip_ranges(graph, plan, qparams), "w_qscheme": "", "a_qscheme": ""})
    return Emitted((path,))


@READ_BACKS.register("sophgo_clip_ranges")
def check_clip_ranges(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Iterator[str]:
    """Compare every number with the parameters."""
    path = folder / f"{name}_clip_ranges.json"
    read = json.loads(path.read_text(encoding="utf-8"))["sophgo_tpu"]
    for tensor, wanted in clip_ranges(graph, plan, qparams).items():
        entry = read.get(tensor)
        if entry is None:
            yield f"{path.name}: there is no entry '{tensor}'"
            continue
        for key, value in wanted.items():
            same = entry.get(key) == value if isinstance(value, str) else not differs(entry.get(key, []), value, 1e-12)
            if not same:
                yield f"{path.name}: '{key}' of '{tensor}' is {entry.get(key)}, the parameters say {value}"


@EMITTERS.register("sophgo_weight_ids")
def write_weight_ids(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Emitted:
    """Write `<name>_weight_name_to_unique_id.json`: initializer -> row of the calibration table."""
    path = folder / f"{name}_weight_name_to_unique_id.json"
    write_json(path, {weight: row for row, weight in _weights(graph, plan).items()})
    return Emitted((path,))


@READ_BACKS.register("sophgo_weight_ids")
def check_weight_ids(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Iterator[str]:
    """Compare the pairs with the plan."""
    path = folder / f"{name}_weight_name_to_unique_id.json"
    read = json.loads(path.read_text(encoding="utf-8"))
    for row, weight in _weights(graph, plan).items():
        if read.get(weight) != row:
            yield f"{path.name}: weight '{weight}' belongs to row '{row}', the file says {read.get(weight)!r}"
