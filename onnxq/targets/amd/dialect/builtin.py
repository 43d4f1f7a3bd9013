"""The built-in strategies pof2s, fs and tqt: what each of their quantizers and switches is set to.

The values are those of the strategy files that Vitis AI ships. A role that a file says nothing of (activations and
biases of fs) is left to the backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping, JsonObject

Params = JsonMapping


@dataclass(frozen=True)
class Strategy:
    """A strategy by its quantizers, one set of parameters for each role, and the switches that differ from pof2s."""

    name: str
    kind: str
    roles: Mapping[str, Params]
    fold_conv_bn: bool
    convert_bn_to_dwconv: bool
    positions: bool
    """Whether scales are powers of two, so that the DPU's rules and its ways to compute operators apply."""


def _params(method: str, rounding: str, **more: Any) -> JsonObject:
    usual = {"symmetry": True, "per_channel": False, "channel_axis": -1, "unsigned": False, "narrow_range": False}
    return {"bit_width": 8, "method": method, "round_mode": rounding, **usual, **more}


_FRAMEWORK = {"use_framework_quant": True}

STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "pof2s": Strategy(
            "pof2s",
            "Pof2SQuantizer",
            {
                "input": _params("No_OF", "half_up"),
                "weight": _params("Min_MSE", "half_even"),
                "bias": _params("Min_MSE", "half_even"),
                "activation": _params("Min_MSE", "half_up"),
            },
            fold_conv_bn=True,
            convert_bn_to_dwconv=True,
            positions=True,
        ),
        "fs": Strategy(
            "fs",
            "FSQuantizer",
            {
                "input": _params("Min_KL", "half_up", **_FRAMEWORK),
                "weight": _params("No_OF", "half_up", **{**_FRAMEWORK, "per_channel": True}),
            },
            fold_conv_bn=False,
            convert_bn_to_dwconv=False,
            positions=False,
        ),
        "tqt": Strategy(
            "tqt",
            "TQTQuantizer",
            {
                "input": _params("No_OF", "half_up"),
                "weight": _params("No_OF", "half_even"),
                "bias": _params("No_OF", "half_even"),
                "activation": _params("No_OF", "half_up"),
            },
            fold_conv_bn=True,
            convert_bn_to_dwconv=True,
            positions=True,
        ),
    }
)

ALIASES: Mapping[str, str] = MappingProxyType({"8bit": "pof2s", "8bit_tqt": "tqt", "pof2s_tqt": "tqt"})
"""Older names of the same strategies."""


_ELSEWHERE = {
    "fsx": "give its JSON file, which is read as it is",
    "gpu": "give its JSON file, which is read as it is",
    "bfp": 'use "strategy": "fs" with "data_format": "BFP16", or with "convert_datatype": "bfloat16"',
}
"""Strategies that some versions of the tool have beside those of the document."""


def strategy_name(name: str, where: str) -> str:
    """The name of a built-in strategy, whatever its age; an unknown one is an error with the nearest."""
    wanted = ALIASES.get(name, name)
    if wanted in STRATEGIES:
        return wanted
    if name in _ELSEWHERE:
        raise ConfigError(f"{where}: '{name}' is not among the built-in strategies here: {_ELSEWHERE[name]}")
    known = [*STRATEGIES, *ALIASES]
    raise ConfigError(
        f"{where}: '{name}' is no built-in strategy and no file.{did_you_mean(name, known)} Built-in: "
        f"{', '.join(known)}; a file ends in .json"
    )
