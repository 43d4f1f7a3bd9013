"""Ranges for TensorRT without Q and DQ nodes: MQBench's JSON for setDynamicRange, and a calibration cache.

Both are INT8 per tensor: the largest magnitude is 127 steps. The cache holds the step as the eight hexadecimal digits
of a float32, so that it is exact. What moves into a quantized tensor through a Flatten or the like has its range too.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.passed_back import pass_back
from onnxq.emit.tables import differs, lines_of, missing_and_extra, rows
from onnxq.files import replace_file, write_json
from onnxq.graph import Graph
from onnxq.types import QParamsTable, QuantPlan

STEPS = 127
CLIP_RANGES = "_clip_ranges.json"
CACHE = "_calibration.cache"
CACHE_HEADER = "TRT-8601-EntropyCalibration2"
"""Version and calibrator: readers look for "TRT-" and a known calibrator, TensorRT for the one in use."""


def _int8_scales(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> tuple[dict[str, np.float32], str]:
    """Tensor -> scale; none, and why, where some tensor has another format than these files are for."""
    scales: dict[str, np.float32] = {}
    for row in rows(graph, plan, qparams):
        if row.qparams.spec.dtype != "int8" or not row.qparams.spec.symmetric:
            return {}, (
                f"tensor '{row.tensor}' is {row.qparams.spec}, and ranges without Q and DQ nodes are for symmetric int8"
            )
        scales[row.tensor] = np.float32(row.qparams.scale)
    return pass_back(graph, scales), ""


def write_clip_ranges(request: EmitRequest) -> Emitted:
    """Write `<name>_clip_ranges.json`: the largest magnitude of each activation, for setDynamicRange."""
    path = request.path(CLIP_RANGES)
    scales, reason = _int8_scales(*request.quantized)
    if reason:
        return Emitted((), (f"{path.name} is not written: {reason}",))
    ranges = {tensor: STEPS * float(scale) for tensor, scale in scales.items()}
    write_json(path, {"tensorrt": {"blob_range": ranges}})
    return Emitted((path,))


def check_clip_ranges(request: EmitRequest) -> Iterator[str]:
    path = request.path(CLIP_RANGES)
    scales, reason = _int8_scales(*request.quantized)
    if reason:
        return
    read = json.loads(path.read_text(encoding="utf-8"))["tensorrt"]["blob_range"]
    yield from missing_and_extra(path.name, read, scales)
    for tensor in scales.keys() & read.keys():
        if differs(read[tensor], STEPS * float(scales[tensor]), 1e-12):
            yield f"{path.name}: tensor '{tensor}' has {read[tensor]}, not {STEPS} steps of its scale {scales[tensor]}"


def write_calibration_cache(request: EmitRequest) -> Emitted:
    """Write `<name>_calibration.cache`: the scale of each activation, for TensorRT's implicit quantization."""
    path = request.path(CACHE)
    scales, reason = _int8_scales(*request.quantized)
    if reason:
        return Emitted((), (f"{path.name} is not written: {reason}",))
    unfit = _unfit_for_cache(scales)
    if unfit is not None:
        said = (
            f"{path.name} is not written: tensor '{unfit}' cannot stand in a calibration cache, whose lines are "
            "'<tensor>: <scale>'. Rename it in the model if you need the cache; the Q/DQ model needs none"
        )
        return Emitted((), warnings=(said,))
    lines = [CACHE_HEADER]
    colons = []
    for tensor, scale in scales.items():
        if ":" in tensor:
            colons.append(tensor)
        lines.append(f"{tensor}: {struct.pack('>f', float(scale)).hex()}")
    replace_file(path, lambda stream: stream.write("".join(f"{line}\n" for line in lines).encode("utf-8")))
    notes = []
    if colons:
        notes.append(
            f"{path.name} has {len(colons)} tensors with ':' in their names ('{colons[0]}'): TensorRT's own writing, "
            "but onnxruntime's TensorRT provider cuts names there. Rename them if it is to read this file"
        )
    return Emitted((path,), tuple(notes))


def check_calibration_cache(request: EmitRequest) -> Iterator[str]:
    path = request.path(CACHE)
    scales, reason = _int8_scales(*request.quantized)
    if reason or _unfit_for_cache(scales) is not None:
        return
    header, *lines = lines_of(path) or [""]
    if not header.startswith("TRT-"):
        yield f"{path.name}: the first line is '{header}', not 'TRT-<version>-<calibrator>'"
    read: dict[str, np.float32] = {}
    for line in lines:
        tensor, _, digits = line.rpartition(": ")
        read[tensor] = np.frombuffer(bytes.fromhex(digits), ">f4")[0]
    yield from missing_and_extra(path.name, read, scales)
    for tensor in scales.keys() & read.keys():
        if read[tensor] != scales[tensor]:
            yield f"{path.name}: tensor '{tensor}' has scale {read[tensor]}, not {scales[tensor]}"


def _unfit_for_cache(tensors: Iterable[str]) -> str | None:
    """The first tensor whose line no reader could take apart into name and scale."""
    return next((name for name in tensors if re.search(r": |[\n\r]", name) or name != name.strip()), None)


EMITTERS.add("clip_ranges", Emitter(write_clip_ranges, files=(CLIP_RANGES,), read_back=check_clip_ranges))
EMITTERS.add(
    "calibration_cache",
    Emitter(write_calibration_cache, files=(CACHE,), read_back=check_calibration_cache),
)
