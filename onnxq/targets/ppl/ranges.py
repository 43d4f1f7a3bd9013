"""Range files for PPL as MQBench names and writes them: text for `ppl-cuda`, JSON for `ppl` (weights 8 bits, data 16).

`<name>_clip_ranges.json` of ppl-cuda is text despite its name, one `tensor: range` for each line; scripts read it so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.passed_back import operand_rows
from onnxq.emit.tables import Row, differs, lines_of, missing_and_extra, plain, rows
from onnxq.files import replace_file, write_json
from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.types import QParamsTable, QuantPlan

SUFFIX = "_clip_ranges.json"
PRECISION = 1e-6
"""Ranges are printed in full and only lose what float64 loses."""


def half_width(row: Row) -> np.ndarray:
    """The larger of both ends of a range: PPL's CUDA engine takes [-t, t]."""
    return np.asarray(np.maximum(-row.low, row.high))


def write_cuda_ranges(request: EmitRequest) -> Emitted:
    """Write `<name>_clip_ranges.json`: text (not JSON) with a line `tensor: range` for each activation."""
    path = request.path(SUFFIX)
    ranges = operand_rows(*request.quantized)
    unfit = _unfit_for_lines(ranges)
    if unfit is not None:
        said = (
            f"{path.name} is not written: it has one line for each tensor, and the name of tensor '{unfit}' has a line "
            f"break. Rename it in the model if you need this file; ppl.nn itself reads {request.name}_quant.json"
        )
        return Emitted((), warnings=(said,))
    lines = [f"{tensor}: {float(half_width(row))!r}\n" for tensor, row in ranges.items()]
    replace_file(path, lambda stream: stream.write("".join(lines).encode("utf-8")))
    return Emitted(
        (path,), (f"{path.name} is text, as MQBench writes it; {request.name}_quant.json is for ppl.nn itself",)
    )


def check_cuda_ranges(request: EmitRequest) -> Iterator[str]:
    """Compare every line with the parameters."""
    wanted = {tensor: half_width(row) for tensor, row in operand_rows(*request.quantized).items()}
    if _unfit_for_lines(wanted) is not None:
        return
    path = request.path(SUFFIX)
    found: dict[str, str] = {}
    for line in lines_of(path):
        tensor, _, value = line.rpartition(": ")
        found[tensor] = value
    yield from missing_and_extra(path.name, found, wanted)
    for tensor in wanted.keys() & found.keys():
        if differs(found[tensor], wanted[tensor], PRECISION):
            yield f"{path.name}: tensor '{tensor}' has range {found[tensor]}, the parameters say {wanted[tensor]}"


def _unfit_for_lines(tensors: Iterable[str]) -> str | None:
    """The first tensor that would take more than its line."""
    return next((name for name in tensors if "\n" in name or "\r" in name), None)


def write_ranges(request: EmitRequest) -> Emitted:
    """Write `<name>_clip_ranges.json`: step, zero point, range and bits of every quantized tensor, weights included."""
    path = request.path(SUFFIX)
    write_json(path, {"ppl": {tensor: _entry(row) for tensor, row in all_rows(*request.quantized).items()}})
    return Emitted((path,))


def check_ranges(request: EmitRequest) -> Iterator[str]:
    """Compare every entry with the parameters."""
    path = request.path(SUFFIX)
    found = json.loads(path.read_text(encoding="utf-8"))["ppl"]
    wanted = all_rows(*request.quantized)
    yield from missing_and_extra(path.name, found, wanted)
    for tensor in wanted.keys() & found.keys():
        entry, row = found[tensor], wanted[tensor]
        numbers = (
            ("step", row.qparams.scale),
            ("zero_point", row.qparams.zero_point),
            ("min", row.low),
            ("max", row.high),
            ("bit", row.qparams.spec.bits),
        )
        for key, value in numbers:
            if key not in entry or differs(entry[key], value, PRECISION):
                yield f"{path.name}: tensor '{tensor}' has {key} {entry.get(key)}, the parameters say {value}"


def all_rows(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, Row]:
    """Tensor -> parameters: operands and weights."""
    weights = {row.tensor: row for row in rows(graph, plan, qparams, role="weight")}
    return operand_rows(graph, plan, qparams) | weights


def _entry(row: Row) -> JsonObject:
    return {
        "step": plain(row.qparams.scale),
        "zero_point": row.qparams.zero_point.tolist(),
        "min": plain(row.low),
        "max": plain(row.high),
        "bit": row.qparams.spec.bits,
        "type": "biased",
    }


EMITTERS.add("ppl_cuda_ranges", Emitter(write_cuda_ranges, files=(SUFFIX,), read_back=check_cuda_ranges))
EMITTERS.add("ppl_ranges", Emitter(write_ranges, files=(SUFFIX,), read_back=check_ranges))
