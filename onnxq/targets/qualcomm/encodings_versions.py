"""Qualcomm's encodings files (SNPE, QNN, AIMET): the entry of one tensor in each version, written and read.

Up to 1.0.0 stored values count as unsigned: real = (q + offset) * scale with q in [0, 2^bits), so offset is minus the
unsigned zero point, and signed symmetric int8 has offset -128. Version 2.0.0 has ONNX's zero point and element type.

0.4.0, 0.6.1   name -> list with one entry per channel: bitwidth, is_symmetric ("True"), min, max, scale, offset, dtype
1.0.0          list: name, dtype, bw, is_sym, enc_type, scale [...], offset [...], block_size
2.0.0          list: name, output_dtype, y_scale, y_zero_point (left out when 0), axis, block_size
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.errors import SpecError, UnsupportedError
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.types import PerBlock, PerTensor, QParams

VERSIONS = ("0.6.1", "1.0.0", "2.0.0")
BITS = (4, 8, 16)
CASTS = ("float16", "bfloat16")
"""Formats without a scale. Version 2.0.0 does not list them: a cast is no quantization there."""

_ALL = "choose encodings=2.0.0, which can"


@dataclass(frozen=True, eq=False)
class Encoding:
    """What an entry says about a tensor; a float kind without scales when `kind` is "float16" or "bfloat16".

    kind            ONNX element type: "uint8", "int16", "float8e4m3fn" ...
    scale           float64, one for each scale, of the shape of the scales; empty for float16 and bfloat16
    zero_point      int64, in the numbers of `kind`, the same shape
    axis            of the channels or blocks; None per tensor, and where a version does not say it
    block_size      None unless per block
    """

    kind: str
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int | None = None
    block_size: int | None = None

    @property
    def integer(self) -> bool:
        return "int" in self.kind

    @property
    def bits(self) -> int:
        return int(re.findall(r"\d+", self.kind)[0])

    @property
    def signed(self) -> bool:
        return not self.kind.startswith("uint")

    @property
    def symmetric(self) -> bool:
        """As versions below 2.0.0 mean it: signed numbers around 0."""
        return self.signed and not self.zero_point.any()

    @property
    def offset(self) -> np.ndarray:
        """Minus the zero point in unsigned numbers."""
        return -(self.zero_point + (2 ** (self.bits - 1) if self.signed else 0))


def encoding_of(tensor: str, qparams: QParams, *, constant: bool) -> Encoding:
    """The entry of a quantizer. The files know no narrowed ranges: constants are clipped, anything else is refused."""
    spec = qparams.spec
    kind = spec.format.stored_as
    if kind in CASTS:
        return Encoding(kind, np.zeros(0), np.zeros(0, np.int64))
    if spec.format.onnx_type is None or (spec.evenly_spaced and spec.bits not in BITS):
        raise UnsupportedError(
            f"tensor '{tensor}': encodings files hold integers of {', '.join(map(str, BITS))} bits and floats, "
            f"not {spec.dtype}; choose one of these for it"
        )
    if not constant and spec.evenly_spaced and (spec.qmin, spec.qmax) != spec.format.integers:
        raise UnsupportedError(
            f"tensor '{tensor}': encodings files cannot say that {spec.dtype} saturates at [{spec.qmin}, {spec.qmax}]; "
            "use the full range for activations"
        )
    scale, zero_point = qparams.scale.astype(np.float64), qparams.zero_point.astype(np.int64)
    return Encoding(kind, scale, zero_point, *_axes(qparams))


def _axes(qparams: QParams) -> tuple[int | None, int | None]:
    granularity = qparams.spec.granularity
    if isinstance(granularity, PerTensor):
        return None, None
    return granularity.axis, granularity.size if isinstance(granularity, PerBlock) else None


def as_said(encoding: Encoding, version: str) -> Encoding:
    """The same in the words of a version: below 2.0.0 asymmetric is unsigned, scales are a row, no axis is named.

    Blocks of an [in, out] weight stand there in the order of its outputs.
    """
    if version == "2.0.0" or not encoding.integer:
        return encoding
    scale, zero_point = encoding.scale, -encoding.offset
    if encoding.block_size is not None and encoding.axis == 0:
        scale, zero_point = scale.T, zero_point.T
    shape = () if encoding.axis is None else (-1,)
    kind = f"uint{encoding.bits}"
    if encoding.symmetric:
        kind, zero_point = encoding.kind, np.zeros(scale.shape, np.int64)
    return Encoding(kind, scale.reshape(shape), zero_point.reshape(shape), None, encoding.block_size)


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_entry(tensor: str, encoding: Encoding, version: str) -> list[JsonObject] | JsonObject | None:
    """The entry of one tensor; None where a version leaves it out, UnsupportedError where it has no words for it."""
    if version == "2.0.0":
        return _entry_2_0(tensor, encoding)
    if not encoding.integer:
        if encoding.kind != "float16":
            raise UnsupportedError(
                f"tensor '{tensor}': encodings of version {version} know float16 only, not {encoding.kind}"
                + (f"; {_ALL}" if encoding.kind != "bfloat16" else "; use float16 for it, or leave it float")
            )
        plain = {"bitwidth": 16, "dtype": "float"}
        return [plain] if version != "1.0.0" else {"name": tensor, "dtype": "FLOAT", "bw": 16, "enc_type": "PER_TENSOR"}
    return _entry_1_0(tensor, encoding) if version == "1.0.0" else _entry_0_6(tensor, encoding, version)


def _entry_0_6(tensor: str, encoding: Encoding, version: str) -> list[JsonObject]:
    if encoding.block_size is not None:
        raise UnsupportedError(f"tensor '{tensor}': version {version} has no scales per block; {_ALL}")
    kind = {} if version == "0.4.0" else {"dtype": "int"}
    return [
        {
            "bitwidth": encoding.bits,
            **kind,
            "is_symmetric": str(encoding.symmetric),
            "min": float(scale * offset),
            "max": float(scale * (2**encoding.bits - 1 + offset)),
            "offset": int(offset),
            "scale": float(scale),
        }
        for scale, offset in zip(encoding.scale.reshape(-1), encoding.offset.reshape(-1), strict=True)
    ]


def _entry_1_0(tensor: str, encoding: Encoding) -> JsonObject:
    entry: JsonObject = {"name": tensor, "dtype": "INT", "bw": encoding.bits, "is_sym": encoding.symmetric}
    entry["enc_type"] = "PER_TENSOR" if encoding.axis is None else "PER_CHANNEL"
    if encoding.block_size is not None:
        if encoding.scale.ndim != 2:
            raise UnsupportedError(f"tensor '{tensor}': version 1.0.0 has scales per block for matrices only; {_ALL}")
        entry.update(enc_type="PER_BLOCK", block_size=encoding.block_size)
    said = as_said(encoding, "1.0.0")
    return {**entry, "scale": said.scale.reshape(-1).tolist(), "offset": said.offset.reshape(-1).tolist()}


def _entry_2_0(tensor: str, encoding: Encoding) -> JsonObject | None:
    if encoding.kind in CASTS:
        return None
    entry: JsonObject = {"name": tensor, "output_dtype": encoding.kind, "y_scale": encoding.scale.tolist()}
    if encoding.zero_point.any():
        entry["y_zero_point"] = encoding.zero_point.tolist()
    if encoding.axis is not None:
        entry["axis"] = encoding.axis
    if encoding.block_size is not None:
        entry["block_size"] = encoding.block_size
    return entry


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_encodings(path: Path) -> dict[str, Encoding]:
    """Tensor -> what an encodings file of any version says about it; activations and parameters together."""
    try:
        return parse_encodings(json.loads(path.read_text(encoding="utf-8")))
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def parse_encodings(document: JsonMapping) -> dict[str, Encoding]:
    """The same for the contents of a file."""
    version = str(document.get("version", "0.4.0"))
    if version in ("0.4.0", "0.5.0", "0.6.1"):
        return {name: _read_0_6(entry) for section in _sections(document, dict) for name, entry in section.items()}
    if version == "1.0.0":
        return {str(entry["name"]): _read_1_0(entry) for section in _sections(document, list) for entry in section}
    if version == "2.0.0":
        return {str(entry["name"]): _read_2_0(entry) for entry in document["encodings"]}
    raise SpecError(f"encodings of version '{version}'; known are {', '.join(VERSIONS)}")


def _sections(document: JsonMapping, kind: type) -> list[Any]:
    sections = [document["activation_encodings"], document["param_encodings"]]
    if not all(isinstance(section, kind) for section in sections):
        raise SpecError(f"activation_encodings and param_encodings must each be a {kind.__name__} in this version")
    return sections


def _read_0_6(entry: list[JsonMapping]) -> Encoding:
    first = entry[0]
    if first.get("dtype", "int") == "float":
        return Encoding(f"float{first['bitwidth']}", np.zeros(0), np.zeros(0, np.int64))
    shape = () if len(entry) == 1 else (len(entry),)
    scale = np.array([item["scale"] for item in entry], np.float64).reshape(shape)
    offset = np.array([item["offset"] for item in entry], np.int64).reshape(shape)
    return _from_offsets(first["bitwidth"], first["is_symmetric"] == "True", scale, offset)


def _read_1_0(entry: JsonMapping) -> Encoding:
    if entry["dtype"] == "FLOAT":
        return Encoding(f"float{entry['bw']}", np.zeros(0), np.zeros(0, np.int64))
    shape = () if entry["enc_type"] == "PER_TENSOR" else (-1,)
    scale, offset = np.array(entry["scale"], np.float64), np.array(entry["offset"], np.int64)
    found = _from_offsets(entry["bw"], entry["is_sym"], scale.reshape(shape), offset.reshape(shape))
    return Encoding(found.kind, found.scale, found.zero_point, None, entry.get("block_size"))


def _from_offsets(bits: int, symmetric: bool, scale: np.ndarray, offset: np.ndarray) -> Encoding:
    kind, shift = (f"int{bits}", 2 ** (bits - 1)) if symmetric else (f"uint{bits}", 0)
    return Encoding(kind, scale, -offset - shift)


def _read_2_0(entry: JsonMapping) -> Encoding:
    scale = np.array(entry["y_scale"], np.float64)
    zero_point = np.array(entry.get("y_zero_point", np.zeros(scale.shape)), np.int64)
    return Encoding(entry["output_dtype"], scale, zero_point, entry.get("axis"), entry.get("block_size"))
