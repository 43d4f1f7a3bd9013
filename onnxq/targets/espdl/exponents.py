"""Exponents for ESP-DL: every scale is a power of two, and a number is integer * 2^exponent."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.tables import Row, missing_and_extra, rows_of
from onnxq.errors import UnsupportedError
from onnxq.files import write_json
from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.types import PerChannel, QParams, QParamsTable, QuantPlan

ROLES = ("activation", "weight", "bias")
MULTIPLIES = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Mul")


def write_exponents(request: EmitRequest) -> Emitted:
    """Write `<name>_espdl.json`: the exponent of every quantized tensor, with bits and rounding."""
    path = request.path("_espdl.json")
    tensors = {row.tensor: _entry(row) for row in rows_of(*request.quantized, *ROLES)}
    write_json(
        path, {"format": "onnxq-espdl-exponents", "version": 1, "target": request.backend.name, "tensors": tensors}
    )
    return Emitted((path,), tuple(_left_shifts(*request.quantized)))


def check_exponents(request: EmitRequest) -> Iterator[str]:
    """2^exponent must be the scale, bit for bit."""
    path = request.path("_espdl.json")
    found = json.loads(path.read_text(encoding="utf-8"))["tensors"]
    wanted = {row.tensor: row for row in rows_of(*request.quantized, *ROLES)}
    yield from missing_and_extra(path.name, found, wanted)
    for tensor in wanted.keys() & found.keys():
        entry, parameters = found[tensor], wanted[tensor].qparams
        scale = np.ldexp(1.0, np.asarray(entry["exponent"], np.int64)).astype(np.float32)
        if not np.array_equal(scale, parameters.scale):
            yield f"{path.name}: tensor '{tensor}' has exponent {entry['exponent']}, its scale is {parameters.scale}"
        if entry.get("axis") != getattr(parameters.spec.granularity, "axis", None):
            yield f"{path.name}: tensor '{tensor}' has axis {entry.get('axis')}, it is {parameters.spec.granularity}"
        if (entry["min"], entry["max"]) != (parameters.spec.qmin, parameters.spec.qmax):
            yield f"{path.name}: tensor '{tensor}' has integers {entry['min']} to {entry['max']}, not {parameters.spec}"


def exponents(tensor: str, parameters: QParams) -> np.ndarray:
    """log2 of each scale; a scale that is no power of two, or a zero point, has no place in the format."""
    mantissa, exponent = np.frexp(parameters.scale.astype(np.float64))
    if np.any(mantissa != 0.5) or np.any(parameters.zero_point != 0):
        raise UnsupportedError(
            f"tensor '{tensor}' has a scale that is no power of two, or a zero point; ESP-DL takes neither: leave the "
            "formats of espdl as they are, and round scales in qparams.json to powers of two"
        )
    return np.asarray(exponent, np.int64) - 1


def _entry(row: Row) -> JsonObject:
    spec = row.qparams.spec
    entry: JsonObject = {
        "role": "activation" if row.placement.role == "output" else row.placement.role,
        "exponent": exponents(row.tensor, row.qparams).tolist(),
        "min": spec.qmin,
        "max": spec.qmax,
        "rounding": spec.rounding,
    }
    if isinstance(spec.granularity, PerChannel):
        entry["axis"] = spec.granularity.axis
    return entry


def _left_shifts(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> Iterator[str]:
    """A line for each product whose result has a finer step than its accumulator: ESP-DL shifts to the right only.

    Channels have accumulators with steps of their own; the coarsest one is the worst.
    """
    for node in graph.nodes():
        if node.op not in MULTIPLIES or node.name not in plan.quantized:
            continue
        result = _result(graph, plan, node.outputs[0].name)
        names = (node.inputs[0].name, node.inputs[1].name)
        if result is None or any(tensor not in qparams for tensor in names):
            continue
        one, other = (exponents(tensor, qparams[tensor]) for tensor in names)
        shift = int(np.min(exponents(result, qparams[result]) - one.max() - other.max()))
        if shift < 0:
            yield (
                f"the result '{result}' of {node.op} '{node.name}' has a finer step than the product of its inputs "
                f"(by {-shift} bits); ESP-DL cannot shift to the left: widen the range of '{result}' in qparams.json"
            )


def _result(graph: Graph, plan: QuantPlan, tensor: str) -> str | None:
    """The quantized tensor that leaves a node, behind the activation that is fused into it."""
    while tensor not in plan:
        uses = graph.consumers(tensor)
        if len(uses) != 1 or uses[0].node.name not in plan.fused:
            return None
        tensor = uses[0].node.outputs[0].name
    return tensor


EMITTERS.add("espdl_exponents", Emitter(write_exponents, files=("_espdl.json",), read_back=check_exponents))
