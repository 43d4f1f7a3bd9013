"""Tables of scales and positions for AMD's tools: MQBench's clip ranges, and quant_info of vai_q_pytorch.

clip ranges    {"vitis": {tensor: {"scale": 0.03125}}}
quant_info     {"param": {tensor: [[8, 5]]}, "output": {...}, "input": {}, ...}     [bits, position] of each output

Both list weights, biases and activations of `<name>_deploy_model.onnx` by the names of its tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnxq.emit import EMITTERS, READ_BACKS, Emitted
from onnxq.emit.tables import MODEL_SUFFIX, Row, differs, rows
from onnxq.errors import UnsupportedError
from onnxq.files import write_json
from onnxq.graph import Graph
from onnxq.numerics.positions import exact_position
from onnxq.types import Backend, QParamsTable, QuantPlan

CLIP_RANGES = "_clip_ranges.json"
QUANT_INFO = "_quant_info.json"


def all_rows(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> list[tuple[str, Row]]:
    """(role, row) of every quantizer: weights, then biases, then activations."""
    return [(role, row) for role in ("weight", "bias", "activation") for row in rows(graph, plan, qparams, role=role)]


def position_of(row: Row) -> int:
    """The position of a quantizer; a file of positions has no words for any other scale."""
    position = exact_position(row.qparams.scale)
    if position is None or row.qparams.zero_point.any():
        raise UnsupportedError(
            f"tensor '{row.tensor}' has a scale that is not a single power of two (or a zero point), and tables of "
            "positions hold nothing else. Use strategy=fs, whose table holds scales, or a power-of-two format for it"
        )
    return position


@EMITTERS.register("vitis_clip_ranges")
def write_clip_ranges(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Emitted:
    """Write `<name>_clip_ranges.json`: the scale of every weight, bias and activation, in MQBench's form for Vitis."""
    table: dict[str, Any] = {}
    for _, row in all_rows(graph, plan, qparams):
        if row.qparams.scale.size != 1:
            raise UnsupportedError(
                f"tensor '{row.tensor}' has {row.qparams.scale.size} scales, and this table holds one for each tensor. "
                "Quantize it per tensor"
            )
        table[row.tensor] = {"scale": float(row.qparams.scale)}
    path = folder / f"{name}{CLIP_RANGES}"
    write_json(path, {"vitis": table})
    return Emitted((path,))


@READ_BACKS.register("vitis_clip_ranges")
def check_clip_ranges(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Iterator[str]:
    file = f"{name}{CLIP_RANGES}"
    found = json.loads((folder / file).read_text(encoding="utf-8"))["vitis"]
    wanted = {row.tensor: row for _, row in all_rows(graph, plan, qparams)}
    yield from _other_names(file, set(found), set(wanted))
    for tensor in found.keys() & wanted.keys():
        if differs(found[tensor]["scale"], wanted[tensor].qparams.scale, 0.0):
            yield f"{file}: '{tensor}' has scale {found[tensor]['scale']}, not {float(wanted[tensor].qparams.scale)}"


@EMITTERS.register("vitis_quant_info")
def write_quant_info(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Emitted:
    """Write `<name>_quant_info.json`: bits and position of every weight, bias and activation, as vai_q_pytorch does."""
    listed: dict[str, dict[str, Any]] = {"param": {}, "output": {}}
    for role, row in all_rows(graph, plan, qparams):
        entry = [[row.qparams.spec.bits, position_of(row)]]
        listed["output" if role == "activation" else "param"][row.tensor] = entry
    model = folder / f"{name}{MODEL_SUFFIX}.onnx"
    about = {"fast_finetuned": False, "bias_corrected": False, "version": "onnxq"}
    if model.exists():  # the emitter "deploy" comes first: the sum says which model the positions belong to
        about["graph_md5"] = hashlib.md5(model.read_bytes(), usedforsecurity=False).hexdigest()
    path = folder / f"{name}{QUANT_INFO}"
    write_json(path, {**listed, "input": {}, **about})
    return Emitted((path,))


@READ_BACKS.register("vitis_quant_info")
def check_quant_info(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Iterator[str]:
    file = f"{name}{QUANT_INFO}"
    read = json.loads((folder / file).read_text(encoding="utf-8"))
    wanted: dict[str, dict[str, list[list[int]]]] = {"param": {}, "output": {}}
    for role, row in all_rows(graph, plan, qparams):
        entry = [[row.qparams.spec.bits, position_of(row)]]
        wanted["output" if role == "activation" else "param"][row.tensor] = entry
    for part, entries in wanted.items():
        yield from _other_names(f"{file} ({part})", set(read[part]), set(entries))
        for tensor in read[part].keys() & entries.keys():
            if read[part][tensor] != entries[tensor]:
                yield f"{file}: '{tensor}' has [bits, position] {read[part][tensor]}, not {entries[tensor]}"


def _other_names(file: str, found: set[str], wanted: set[str]) -> Iterator[str]:
    for tensor in sorted(wanted - found):
        yield f"{file}: '{tensor}' is missing"
    for tensor in sorted(found - wanted):
        yield f"{file}: '{tensor}' is listed and not quantized"
