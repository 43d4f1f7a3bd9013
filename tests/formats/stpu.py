"""A strict reader of STPU's range file, and its rule for exponents as published: a search over all exponents."""

from __future__ import annotations

import json
import math
from pathlib import Path

KINDS = ({"min", "max"}, {"min", "max", "emin"}, {"alpha", "zero_point"})


def minmax_file(path: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))
    for name, entry in found.items():
        assert set(entry) in KINDS, name
        if "min" in entry:
            assert entry["min"] == -entry["max"]
            assert entry["max"] > 0
        else:
            assert name.endswith("_bias")
            assert entry["zero_point"] == 0
        assert isinstance(entry.get("emin", 0), int)
    return found


def exponent_index(value: float) -> int:
    """The e in 1 ... 254 with 2^(e - 127) <= value < 2^(e - 126)."""
    if value == 0:
        return 0
    for index in range(1, 254):
        if 2.0 ** (index - 127) <= value < 2.0 ** (index - 126):
            return index
    return 1 if value < 2.0**-126 else 254


def convolution_emin(data: float, weight: float, result: float, products: int) -> int:
    return exponent_index(max(math.sqrt(products) * data * weight, result)) - 10
