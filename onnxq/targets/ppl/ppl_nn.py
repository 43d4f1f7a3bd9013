"""The quantization file of ppl.nn (`--quant-file`): `quant_info` by tensor, `op_info` by node.

The CUDA engine reads `per_channel`, `bit_width`, `tensor_min` and `tensor_max`, and computes

    scale = (tensor_max - tensor_min) / (2^bit_width - 1)        zero_point = tensor_max + tensor_min

so that a range means what it says only if it is symmetric. Ranges are therefore written as [-t, t]: t is 127.5 steps of
a symmetric int8 format, from which the engine computes exactly its scale, and the larger end of any other. Every number
must have a decimal point: the reader takes the bytes of an integer for those of a double.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.tables import Row, differs, missing_and_extra, plain
from onnxq.files import write_json
from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.targets.ppl.ranges import PRECISION, all_rows, half_width
from onnxq.types import PerBlock, PerTensor, QParamsTable, QuantPlan

INT8_BITS = 8


def write_quant_file(request: EmitRequest) -> Emitted:
    """Write `<name>_quant.json`: the file that ppl.nn reads with --quant-file."""
    path = request.path("_quant.json")
    listed = rows_without_blocks(*request.quantized)
    document: JsonObject = {"quant_info": {tensor: _entry(row) for tensor, row in listed.items()}}
    notes = []
    if _all_int8(listed):
        document["op_info"] = {node: {"data_type": "INT8"} for node in (*request.plan.quantized, *request.plan.fused)}
    else:
        notes.append(f"{path.name} names no node as INT8: ppl.nn has no kernels for these numbers of bits")
    lopsided = sum(not _is_symmetric(row) for row in listed.values())
    if lopsided:
        notes.append(
            f"{path.name}: ppl.nn takes symmetric ranges only, so {lopsided} asymmetric ranges are written as [-t, t] "
            "around them; what ppl.nn computes is coarser there than the quantized model"
        )
    write_json(path, document)
    return Emitted((path,), tuple(notes))


def check_quant_file(request: EmitRequest) -> Iterator[str]:
    """Compute scales as the engine does, and compare them with the parameters."""
    path = request.path("_quant.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    found = document["quant_info"]
    wanted = rows_without_blocks(*request.quantized)
    yield from missing_and_extra(path.name, found, wanted)
    for tensor in wanted.keys() & found.keys():
        entry, row = found[tensor], wanted[tensor]
        low, high = (np.asarray(entry[key], np.float64) for key in ("tensor_min", "tensor_max"))
        bits = row.qparams.spec.bits
        scale = (high - low) / (2**bits - 1)
        if differs(scale, _engine_scale(row), PRECISION):
            yield f"{path.name}: tensor '{tensor}' gets scale {scale} from its range, it should be {_engine_scale(row)}"
        if np.any(high + low != 0):
            yield f"{path.name}: tensor '{tensor}' has the range [{low}, {high}], which is not symmetric"
        said = {
            "bit_width": bits,
            "per_channel": low.ndim > 0,
            "sym": True,
            "quant_flag": True,
            "scale": scale,
            "zero_point": high + low,
            "q_max": 2 ** (bits - 1) - 1,
            "q_min": -(2 ** (bits - 1)),
        }
        for key, value in said.items():
            if differs(entry.get(key), value, PRECISION):
                yield f"{path.name}: tensor '{tensor}' has {key} {entry.get(key)}, which goes with {value}"
    integer = {*request.plan.quantized, *request.plan.fused} if _all_int8(wanted) else set()
    yield from missing_and_extra(f"{path.name} (op_info)", document.get("op_info", {}), integer)


def _all_int8(listed: dict[str, Row]) -> bool:
    return all(row.qparams.spec.bits == INT8_BITS for row in listed.values())


def rows_without_blocks(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, Row]:
    """Activations and weights; scales of blocks have no place in the file."""
    found = all_rows(graph, plan, qparams)
    return {name: row for name, row in found.items() if not isinstance(row.qparams.spec.granularity, PerBlock)}


def _is_symmetric(row: Row) -> bool:
    return row.qparams.spec.symmetric and row.qparams.spec.signed


def _top(row: Row) -> np.ndarray:
    """The t of [-t, t]."""
    if _is_symmetric(row):
        return np.asarray((2**row.qparams.spec.bits - 1) / 2 * row.qparams.scale.astype(np.float64))
    return half_width(row)


def _engine_scale(row: Row) -> np.ndarray:
    """What the engine shall find: the scale itself, or that of the symmetric range around an asymmetric one."""
    if _is_symmetric(row):
        return row.qparams.scale.astype(np.float64)
    return np.asarray(2.0 * half_width(row) / (2**row.qparams.spec.bits - 1))


def _entry(row: Row) -> JsonObject:
    top = _top(row)
    bits = row.qparams.spec.bits
    return {
        "bit_width": bits,
        "per_channel": not isinstance(row.qparams.spec.granularity, PerTensor),
        "sym": True,
        "algorithm": row.placement.observer,
        "quant_flag": True,
        "scale": plain(_engine_scale(row)),
        "zero_point": plain(np.zeros_like(top)),
        "tensor_max": plain(top),
        "tensor_min": plain(-top),
        "q_max": 2 ** (bits - 1) - 1,
        "q_min": -(2 ** (bits - 1)),
    }


EMITTERS.add("ppl_nn", Emitter(write_quant_file, files=("_quant.json",), read_back=check_quant_file))
