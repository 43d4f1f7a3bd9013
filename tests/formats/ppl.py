"""Strict readers of PPL's range files, written from the published rules.

`clip_ranges_text`   MQBench `ppl-cuda`: one `tensor: value` per line
`clip_ranges_json`   MQBench `ppl`: {"ppl": {tensor: {step, zero_point, min, max, bit, type}}}
`engine_quantization`  ppl.nn: the fields that its CUDA engine reads, with the types that its parser takes them for
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LINE = re.compile(r"(?P<tensor>.+): (?P<value>\d+(\.\d+)?(e[+-]\d+)?)")


def clip_ranges_text(path: Path) -> dict[str, float]:
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    found: dict[str, float] = {}
    for line in text[:-1].split("\n"):
        match = _LINE.fullmatch(line)
        assert match, f"not a line `tensor: value`: {line!r}"
        assert match["tensor"] not in found, f"{match['tensor']} stands twice"
        found[match["tensor"]] = float(match["value"])
    return found


def clip_ranges_json(path: Path) -> dict[str, dict[str, Any]]:
    document = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    assert list(document) == ["ppl"]
    for tensor, entry in document["ppl"].items():
        assert list(entry) == ["step", "zero_point", "min", "max", "bit", "type"], tensor
        assert entry["type"] == "biased"
        assert isinstance(entry["bit"], int)
        kinds = {key: isinstance(entry[key], list) for key in ("step", "zero_point", "min", "max")}
        assert len(set(kinds.values())) == 1, f"{tensor}: numbers and lists are mixed"
    found: dict[str, dict[str, Any]] = document["ppl"]
    return found


class Double(float):
    """A JSON number with a point or an exponent: rapidjson's IsDouble."""


@dataclass(frozen=True)
class EngineQuantization:
    """What the CUDA engine makes of the file: tensor -> (scales, zero points), node -> data type."""

    tensors: dict[str, tuple[list[float], list[float]]]
    nodes: dict[str, str]


def engine_quantization(path: Path) -> EngineQuantization:
    document = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once, parse_float=Double)
    assert set(document) <= {"quant_info", "op_info"}, "ppl.nn refuses any other object"
    tensors = {}
    for tensor, entry in document["quant_info"].items():
        assert isinstance(entry["per_channel"], bool)
        assert type(entry["bit_width"]) is int
        assert "scale" in entry, "the engine looks it up, though it computes its own"
        tops, lows = (_doubles(entry[key], entry["per_channel"]) for key in ("tensor_max", "tensor_min"))
        assert len(tops) == len(lows)
        steps = 2 ** entry["bit_width"] - 1
        pairs = list(zip(tops, lows, strict=True))
        tensors[tensor] = ([(top - low) / steps for top, low in pairs], [top + low for top, low in pairs])
    nodes = {}
    for node, entry in document.get("op_info", {}).items():
        assert entry["data_type"] in ("INT8", "FLOAT32")
        nodes[node] = entry["data_type"]
    return EngineQuantization(tensors, nodes)


def _doubles(value: Any, per_channel: bool) -> list[float]:
    values = value if per_channel else [value]
    assert isinstance(values, list)
    for number in values:
        assert isinstance(number, Double), f"{number!r} is an integer in the file: its bytes would be read as a double"
    return [float(number) for number in values]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), "a name stands twice"
    return dict(pairs)
