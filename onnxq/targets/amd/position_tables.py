"""Tables of scales and positions for AMD's tools: MQBench's clip ranges, and quant_info of vai_q_pytorch.

clip ranges    {"vitis": {tensor: {"scale": 0.03125}}}
quant_info     {"param": {tensor: [[8, 5]]}, "output": {...}, "input": {}, ...}     [bits, position] of each output

Both list weights, biases and activations of `<name>_deploy_model.onnx` by the names of its tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.tables import MODEL_SUFFIX, Row, differs, missing_and_extra, rows_of
from onnxq.errors import UnsupportedError
from onnxq.files import write_json
from onnxq.json_file import JsonObject
from onnxq.numerics.positions import exact_position

CLIP_RANGES = "_clip_ranges.json"
QUANT_INFO = "_quant_info.json"
ROLES = ("weight", "bias", "activation")
"""What is listed, in this order."""


def position_of(row: Row) -> int:
    """The position of a quantizer; a file of positions has no words for any other scale."""
    position = exact_position(row.qparams.scale)
    if position is None or row.qparams.zero_point.any():
        raise UnsupportedError(
            f"tensor '{row.tensor}' has a scale that is not a single power of two (or a zero point), and tables of "
            "positions hold nothing else. Use strategy=fs, whose table holds scales, or a power-of-two format for it"
        )
    return position


def write_clip_ranges(request: EmitRequest) -> Emitted:
    """Write `<name>_clip_ranges.json`: the scale of every weight, bias and activation, in MQBench's form for Vitis."""
    table: JsonObject = {}
    for row in rows_of(*request.quantized, *ROLES):
        if row.qparams.scale.size != 1:
            raise UnsupportedError(
                f"tensor '{row.tensor}' has {row.qparams.scale.size} scales, and this table holds one for each tensor. "
                "Quantize it per tensor"
            )
        table[row.tensor] = {"scale": float(row.qparams.scale)}
    path = request.path(CLIP_RANGES)
    write_json(path, {"vitis": table})
    return Emitted((path,))


def check_clip_ranges(request: EmitRequest) -> Iterator[str]:
    path = request.path(CLIP_RANGES)
    found = json.loads(path.read_text(encoding="utf-8"))["vitis"]
    wanted = {row.tensor: row.qparams for row in rows_of(*request.quantized, *ROLES)}
    yield from missing_and_extra(path.name, found, wanted)
    for tensor in found.keys() & wanted.keys():
        if differs(found[tensor]["scale"], wanted[tensor].scale, 0.0):
            yield f"{path.name}: '{tensor}' has scale {found[tensor]['scale']}, not {float(wanted[tensor].scale)}"


def write_quant_info(request: EmitRequest) -> Emitted:
    """Write `<name>_quant_info.json`: bits and position of every weight, bias and activation, as vai_q_pytorch does."""
    listed: dict[str, JsonObject] = {"param": {}, "output": {}}
    for row in rows_of(*request.quantized, *ROLES):
        listed[_part(row)][row.tensor] = [[row.qparams.spec.bits, position_of(row)]]
    model = request.path(MODEL_SUFFIX)
    about = {"fast_finetuned": False, "bias_corrected": False, "version": "onnxq"}
    if model.exists():  # the emitter "deploy" comes first: the sum says which model the positions belong to
        about["graph_md5"] = hashlib.md5(model.read_bytes(), usedforsecurity=False).hexdigest()
    path = request.path(QUANT_INFO)
    write_json(path, {**listed, "input": {}, **about})
    return Emitted((path,))


def check_quant_info(request: EmitRequest) -> Iterator[str]:
    path = request.path(QUANT_INFO)
    read = json.loads(path.read_text(encoding="utf-8"))
    wanted: dict[str, dict[str, Row]] = {"param": {}, "output": {}}
    for row in rows_of(*request.quantized, *ROLES):
        wanted[_part(row)][row.tensor] = row
    for part, listed in wanted.items():
        yield from missing_and_extra(f"{path.name} ({part})", read[part], listed)
        for tensor in read[part].keys() & listed.keys():
            ((bits, position),), parameters = read[part][tensor], listed[tensor].qparams
            if bits != parameters.spec.bits or 2.0**-position != parameters.scale:
                yield f"{path.name}: '{tensor}' has {bits} bits and the scale 2^-{position}, not {parameters.scale}"


def _part(row: Row) -> str:
    return "output" if row.role == "activation" else "param"


EMITTERS.add("vitis_clip_ranges", Emitter(write_clip_ranges, files=(CLIP_RANGES,), read_back=check_clip_ranges))
EMITTERS.add("vitis_quant_info", Emitter(write_quant_info, files=(QUANT_INFO,), read_back=check_quant_info))
