"""Pof2SQuantizer, FSQuantizer, MAFSQuantizer, TQTQuantizer: their parameters, checked, in one spelling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from onnxq.compat.translation import check_keys, shown
from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.targets.amd.dialect.reading import boolean, choice, number, one_of, text, whole

METHODS = {name: name for name in ("No_OF", "Min_MSE", "Min_KL", "Percentile")}
METHOD_NUMBERS = {0: "No_OF", 1: "Min_MSE", 2: "Min_KL", 3: "Percentile"}

ROUNDINGS = {
    "HALF_TO_EVEN": "half_even",
    "HALF_UP": "half_up",
    "HALF_TO_ZERO": "half_to_zero",
    "HALF_AWAY_FROM_ZERO": "half_away",
    "FLOOR": "floor",
}
ROUNDING_NUMBERS = {0: "HALF_TO_EVEN", 1: "HALF_UP", 2: "HALF_AWAY_FROM_ZERO", 3: "FLOOR"}
"""The tool's own enumeration, in which 2 is HALF_AWAY_FROM_ZERO. HALF_TO_ZERO has a name in the document, no number."""

FORMATS = {name: name for name in ("INT", "UINT", "BFP16", "FP16")}

LIMIT_OF_POSITIONS = 52
BIAS_BITS = 32

Read = Callable[[Any, str], Any]

_COMMON: Mapping[str, Read] = {
    "bit_width": lambda value, where: BIAS_BITS if value == BIAS_BITS else whole(value, 1, 16, where),
    "data_format": lambda value, where: choice(value, FORMATS, {}, where),
    "method": lambda value, where: choice(value, METHODS, METHOD_NUMBERS, where),
    "method_percentile": lambda value, where: number(value, 50.0, 100.0, where),
    "round_mode": lambda value, where: choice(value, ROUNDINGS, ROUNDING_NUMBERS, where),
    "symmetry": boolean,
    "per_channel": boolean,
    "channel_axis": lambda value, where: whole(value, -8, 7, where),
    "unsigned": boolean,
    "narrow_range": boolean,
    "epsilon": lambda value, where: number(value, 0.0, 1.0, where),
}
_POSITIONS: Mapping[str, Read] = {
    "min_quantize_pos": lambda value, where: whole(value, -LIMIT_OF_POSITIONS, LIMIT_OF_POSITIONS, where),
    "max_quantize_pos": lambda value, where: whole(value, 0, LIMIT_OF_POSITIONS, where),
}
_FIX_NEURON: Mapping[str, Read] = {
    "use_fixneuron_quant": lambda value, where: int(value) if isinstance(value, bool) else whole(value, 0, 2, where)
}
_FRAMEWORK: Mapping[str, Read] = {"use_framework_quant": boolean}

KINDS: Mapping[str, Mapping[str, Read]] = MappingProxyType(
    {
        "Pof2SQuantizer": {**_COMMON, **_POSITIONS, **_FIX_NEURON},
        "FSQuantizer": {**_COMMON, **_FRAMEWORK},
        "MAFSQuantizer": {**_COMMON, **_FRAMEWORK, "ema_decay": lambda value, where: number(value, 0.0, 1.0, where)},
        "TQTQuantizer": {**_COMMON, **_FIX_NEURON},
    }
)
"""Quantizer -> its parameters and how each is read."""

OLD_NAMES = {
    "LastValueMinMaxQuantizer": "FSQuantizer",
    "MovingAvgMinMaxQuantizer": "MAFSQuantizer",
    "LastValueQuantPosQuantizer": "Pof2SQuantizer",
    "LastValueLogThQuantizer": "TQTQuantizer",
}
SPELLINGS = {"use_framework_quantizer": "use_framework_quant"}
"""The document's spelling of a parameter -> that of the shipped files."""


@dataclass(frozen=True)
class Quantizer:
    """A quantizer as it was given: its kind, the parameters that were named, and the name others may share it by."""

    kind: str
    params: JsonMapping
    where: str
    name: str = ""

    @property
    def power_of_two(self) -> bool:
        return is_power_of_two(self.kind)

    def shown(self) -> JsonObject:
        """The quantizer in the document's spelling, for a row of the table."""
        return {**({"name": self.name} if self.name else {}), "type": self.kind, "params": dict(self.params)}


def is_power_of_two(kind: str) -> bool:
    """Whether the scales of a kind of quantizer are powers of two."""
    return kind in ("Pof2SQuantizer", "TQTQuantizer")


def read_quantizer(given: Any, where: str) -> Quantizer:
    """A quantizer in either spelling: type / params of the document, quantizer_type / quantizer_params of the files."""
    entry = check_keys(given, ("name", "type", "params", "quantizer_type", "quantizer_params"), where)
    type_key = one_of(entry, ("type", "quantizer_type"), where)
    if type_key is None:
        raise ConfigError(f"{where} needs a 'type', one of {', '.join(KINDS)}")
    kind = read_kind(entry[type_key], f"{where}.{type_key}")
    params_key = one_of(entry, ("params", "quantizer_params"), where)
    params = {} if params_key is None else read_params(kind, entry[params_key], f"{where}.{params_key}")
    return Quantizer(kind, params, where, text(entry.get("name", ""), f"{where}.name"))


def read_kind(value: Any, where: str) -> str:
    name = text(value, where)
    kind = OLD_NAMES.get(name, name)
    if kind in KINDS:
        return kind
    if name == "BFPQuantizer":
        raise ConfigError(
            f"{where}: no BFPQuantizer here. Write FSQuantizer with data_format BFP16 in place of bfp; for bf16 there "
            "is convert_datatype bfloat16 for the whole model; for fp32 leave the quantizer out"
        )
    raise ConfigError(f"{where}: unknown quantizer {shown(name)}.{did_you_mean(name, KINDS)} Known: {', '.join(KINDS)}")


def read_param(kind: str, name: str, value: Any, where: str) -> Any:
    """One parameter of a quantizer, whose value stands at `where`."""
    return KINDS[kind][name](value, where)


def read_params(kind: str, given: Any, where: str) -> JsonObject:
    """The parameters of a quantizer with their values in onnxq's words; null means that a value is not set."""
    known = KINDS[kind]
    spellings = [*known, *(old for old, new in SPELLINGS.items() if new in known)]
    params: JsonObject = {}
    for key, value in check_keys(given, spellings, f"{where} of {kind}").items():
        name = SPELLINGS.get(key, key)
        if name in params:
            raise ConfigError(f"{where} has both spellings of '{name}': keep one")
        if value is not None:
            params[name] = read_param(kind, name, value, f"{where}.{key}")
    return params
