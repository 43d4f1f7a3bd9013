"""Encodings files beside a float model: the parameters of every activation and weight for Qualcomm's converters.

One emitter for each version (`encodings_0.6.1` ...), and `snpe_clip_ranges` for the older form without a version.
Biases are not listed: the converters quantize them to 32 bits with the scale input x weight.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.tables import Row, differs, missing_and_extra, rows, rows_of
from onnxq.files import write_json
from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.targets.qualcomm.encodings_versions import (
    CASTS,
    VERSIONS,
    Encoding,
    as_said,
    encoding_of,
    read_encodings,
    write_entry,
)
from onnxq.types import PerChannel, QParamsTable, QuantPlan

_PRECISION = 1e-7
"""Scales are written with all digits of their float32."""

_RANGE_PRECISION = 1e-6


def encodings_document(graph: Graph, plan: QuantPlan, qparams: QParamsTable, version: str) -> JsonObject:
    """The whole file as plain values; version "0.4.0" is the form that names no version."""
    sections: dict[str, list[tuple[str, Any]]] = {"activation": [], "weight": []}
    for role, entries in sections.items():
        for row in rows(graph, plan, qparams, role=role):
            entry = write_entry(row.tensor, _wanted(row), version)
            if entry is not None:
                entries.append((row.tensor, entry))
    if version == "2.0.0":
        return {"version": version, "encodings": [entry for entries in sections.values() for _, entry in entries]}
    activations, parameters = sections.values()
    if version == "1.0.0":
        return {
            "version": version,
            "activation_encodings": [entry for _, entry in activations],
            "param_encodings": [entry for _, entry in parameters],
        }
    document = {"activation_encodings": dict(activations), "param_encodings": dict(parameters)}
    if version == "0.4.0":
        return document
    return {"version": version, **document, "quantizer_args": _quantizer_args(graph, plan, qparams)}


def _wanted(row: Row) -> Encoding:
    return encoding_of(row.tensor, row.qparams, constant=row.role == "weight")


def _quantizer_args(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> JsonObject:
    """What most quantizers have in common, as readers of 0.6.1 expect it."""
    activations = [row.placement.spec for row in rows(graph, plan, qparams)]
    weights = [row.placement.spec for row in rows(graph, plan, qparams, role="weight")]
    return {
        "activation_bitwidth": max((spec.bits for spec in activations), default=8),
        "dtype": "int",
        "is_symmetric": bool(weights) and all(spec.signed and spec.symmetric for spec in weights),
        "param_bitwidth": max((spec.bits for spec in weights), default=8),
        "per_channel_quantization": any(isinstance(spec.granularity, PerChannel) for spec in weights),
        "quant_scheme": "min_max",
    }


def _check(graph: Graph, plan: QuantPlan, qparams: QParamsTable, path: Path, version: str) -> Iterator[str]:
    """A line for each tensor that the file describes otherwise than the parameters, or does not list, or invents."""
    found = read_encodings(path)
    wanted = {
        row.tensor: as_said(_wanted(row), version)
        for row in rows_of(graph, plan, qparams, "activation", "weight")
        if version != "2.0.0" or _wanted(row).kind not in CASTS
    }
    yield from missing_and_extra(path.name, found, wanted)
    for tensor in wanted.keys() & found.keys():
        problems = _differences(found[tensor], wanted[tensor])
        yield from (f"{path.name}: tensor '{tensor}' {problem}" for problem in problems)
    if version in ("0.4.0", "0.6.1"):
        yield from _contradictions(path)


def _contradictions(path: Path) -> Iterator[str]:
    """A line for each entry whose range is not that of its scale and offset, or whose channels differ in their bits."""
    document = json.loads(path.read_text(encoding="utf-8"))
    for section in ("activation_encodings", "param_encodings"):
        for tensor, items in document[section].items():
            for item in items:
                bits = items[0]["bitwidth"]
                if item["bitwidth"] != bits:
                    yield f"{path.name}: tensor '{tensor}' has channels of {bits} and of {item['bitwidth']} bits"
                elif "scale" in item:
                    steps = np.asarray([item["offset"], item["offset"] + 2**bits - 1], np.float64)
                    if differs([item["min"], item["max"]], item["scale"] * steps, _RANGE_PRECISION):
                        yield f"{path.name}: tensor '{tensor}' has a range that is not of its scale and offset: {item}"


def _differences(read: Encoding, wanted: Encoding) -> Iterator[str]:
    if (read.kind, read.block_size) != (wanted.kind, wanted.block_size):
        yield f"is {read.kind} in blocks of {read.block_size}, it should be {wanted.kind}, {wanted.block_size}"
    if differs(read.zero_point, wanted.zero_point, 0):
        yield f"has zero points {read.zero_point}, they should be {wanted.zero_point}"
    if differs(read.scale, wanted.scale, _PRECISION):
        yield f"has scales {read.scale}, they should be {wanted.scale}"
    if read.axis != wanted.axis:
        yield f"has its channels along axis {read.axis}, they are along {wanted.axis}"


def _register(emitter: str, version: str, end: str, summary: str) -> None:
    """An emitter and its read-back for one version."""

    def write(request: EmitRequest) -> Emitted:
        path = request.path(end)
        write_json(path, encodings_document(*request.quantized, version))
        return Emitted((path,))

    def check(request: EmitRequest) -> Iterator[str]:
        return _check(*request.quantized, request.path(end), version)

    write.__doc__ = f"Write `<name>{end}`: {summary}."
    EMITTERS.add(emitter, Emitter(write, (end,), read_back=check))


EMITTER_OF = {version: f"encodings_{version}" for version in VERSIONS}
"""Version -> the emitter of its files."""

for _version, _emitter in EMITTER_OF.items():
    _register(_emitter, _version, f"_{_emitter}.json", f"all parameters, encodings {_version}")
_register("snpe_clip_ranges", "0.4.0", "_clip_ranges.json", "all parameters in the form that names no version")
