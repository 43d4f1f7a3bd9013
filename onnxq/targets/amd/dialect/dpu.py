"""Which formats the DPU computes with; a strategy that asks for others keeps as much of the DPU as can be said.

other widths, roundings   backend option formats=any: positions, their files, the rules where all around is int8
all else                  strategy fs with powers of two: no file of positions has words for channels or no sign
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnxq.json_file import JsonMapping
from onnxq.targets import get_backend

_TABLES = ("input", "weight", "bias", "activation")
_SIGNED = tuple(f"int{bits}" for bits in range(2, 17))


def beyond_dpu(config: JsonMapping) -> tuple[str, bool]:
    """The setting that takes a strategy farthest from the DPU, in words, and whether files can still say positions.

    ("", True) where the DPU has arithmetic for all of them.
    """
    limits = get_backend("vitis").limits
    farther = ""
    for place, settings in _quantizers(config):
        dtype = settings.get("dtype") or (f"int{settings['bits']}" if "bits" in settings else "int8")
        if dtype not in _SIGNED:
            return f"{place} dtype {dtype} is no format of the DPU", False
        if settings.get("per_channel"):
            return f"{place} per_channel is not for the DPU, which has one scale for a tensor", False
        if settings.get("narrow_range"):
            return f"{place} narrow_range is not for the DPU, which uses all of int8", False
        if dtype not in limits.dtypes:
            farther = farther or f"{place} dtype {dtype} is no format of the DPU"
        elif settings.get("rounding", limits.roundings[0]) not in limits.roundings:
            farther = farther or f"{place} rounding {settings['rounding']} is not for the DPU"
    return farther, True


def _quantizers(config: JsonMapping) -> Iterator[tuple[str, JsonMapping]]:
    for table in _TABLES:
        if table in config:
            yield f"[{table}]", config[table]
    for name, parts in config.get("node", {}).items():
        for part, settings in parts.items():
            if isinstance(settings, Mapping):
                yield f"[node.{name}.{part}]", settings
    for name, settings in config.get("tensor", {}).items():
        yield f"[tensor.{name}]", settings
