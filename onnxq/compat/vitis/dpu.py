"""Which formats the DPU computes with; a strategy that asks for others is simulated, and nothing of the DPU applies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onnxq.backends import get_backend

_TABLES = ("input", "weight", "bias", "activation")


def beyond_dpu(config: Mapping[str, Any]) -> str:
    """The first setting that the DPU has no arithmetic for, in words; "" where there is none."""
    limits = get_backend("vitis").limits
    for place, settings in _quantizers(config):
        dtype = settings.get("dtype") or (f"int{settings['bits']}" if "bits" in settings else None)
        if dtype is not None and dtype not in limits.dtypes:
            return f"{place} dtype {dtype} is no format of the DPU"
        if settings.get("per_channel"):
            return f"{place} per_channel is not for the DPU, which has one scale for a tensor"
        if settings.get("narrow_range"):
            return f"{place} narrow_range is not for the DPU, which uses all of int8"
        rounding = settings.get("rounding")
        if rounding is not None and limits.roundings and rounding not in limits.roundings:
            return f"{place} rounding {rounding} is not for the DPU"
    return ""


def _quantizers(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for table in _TABLES:
        if table in config:
            yield f"[{table}]", config[table]
    for name, parts in config.get("node", {}).items():
        for part, settings in parts.items():
            if isinstance(settings, Mapping):
                yield f"[node.{name}.{part}]", settings
    for name, settings in config.get("tensor", {}).items():
        yield f"[tensor.{name}]", settings
