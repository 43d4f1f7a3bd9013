"""w_qscheme and a_qscheme: bits, symmetry, granularity and scales become a number format of onnxq."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxq.compat.mqbench.targets import Target
from onnxq.compat.translation import Translator, shown, spelt, yes_or_no
from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.observers.aliases import ALIASES
from onnxq.types.translation import Outcome, Setting, no_effect

SCHEME_KEYS = ("bit", "symmetry", "per_channel", "pot_scale", "symmetric_range")

SCHEME_DEFAULTS: JsonMapping = {"symmetry": True, "per_channel": False, "pot_scale": False, "bit": 8}
"""What a scheme has that does not say otherwise, whatever the target has."""

BASE_ARGUMENTS = (
    "dtype",
    "qscheme",
    "reduce_range",
    "quant_min",
    "quant_max",
    "ch_axis",
    "pot_scale",
    "factory_kwargs",
)
"""Arguments that every observer of MQBench takes: they are about the number format, not about the range."""

Fields = JsonObject
"""Fields of a table of onnxq, such as {"dtype": "int8", "symmetric": True}."""


@dataclass(frozen=True)
class SchemeRole:
    """What a target does about the formats of weights ("w") or activations ("a"), whatever a scheme says."""

    target: Target
    letter: str

    @property
    def keeps_bits(self) -> str:
        """Why bits of a scheme change nothing; empty where they count. MQBench does the same for OPENVINO."""
        return self.target.defaults.weight_bits if self.letter == "w" else ""

    def elsewhere(self, bits: int, *, symmetric: bool) -> str:
        """Where tensors have another format than the scheme says."""
        scheme = self.target.backend.scheme
        if scheme.ends is not None and (bits != 8 or not symmetric):
            return f"; {'8 bits' if symmetric else 'int8 with a zero point'} at the first and the last layer"
        if self.letter == "a" and symmetric and scheme.unsigned is not None:
            return f"; {scheme.unsigned.dtype} where nothing is negative"
        return ""


def read_scheme(given: Any, where: str, translator: Translator, role: SchemeRole) -> tuple[Fields, JsonObject]:
    """A scheme as fields of [weight] or [activation], and the keys that are arguments of the observer.

    A scheme is complete: what it leaves out has MQBench's default, not the target's. `role` says whose format it is.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{where} must hold keys and values, such as {{'bit': 8, 'symmetry': True}}; got {shown(given)}"
        )
    rest = {str(key): value for key, value in given.items() if key not in SCHEME_KEYS}
    _check_further_keys(rest, where)
    symmetric = _flag(given, "symmetry", where)
    per_channel, power_of_two = _flag(given, "per_channel", where), _flag(given, "pot_scale", where)
    narrow = _flag(given, "symmetric_range", where)
    bits = _bits(given.get("bit", SCHEME_DEFAULTS["bit"]), where)
    fields: Fields = {
        "dtype": f"{'int' if symmetric else 'uint'}{bits}",
        "symmetric": symmetric,
        "per_channel": per_channel,
        "power_of_two": power_of_two,
    }
    became = {
        "bit": _set("dtype", fields["dtype"], role.elsewhere(bits, symmetric=symmetric)),
        "symmetry": _set("symmetric", symmetric),
        "per_channel": _set("per_channel", per_channel),
        "pot_scale": _set("power_of_two", power_of_two),
        "symmetric_range": _set("narrow_range", narrow),
    }
    if symmetric and role.keeps_bits:
        del fields["dtype"]
        became["bit"] = became["symmetric_range"] = no_effect(role.keeps_bits)
    elif symmetric:
        fields["narrow_range"] = narrow
    elif narrow:
        became["symmetric_range"] = no_effect(f"{fields['dtype']} has no lowest value to drop, it starts at 0")
    for key in SCHEME_KEYS:
        if key in given:
            translator.row(f"{where}.{key}", given[key], became[key])
        elif key in SCHEME_DEFAULTS:
            translator.row(f"{where}.{key}", "left out", became[key].adding("the default of a scheme"))
    return fields, rest


def take_base_arguments(fields: Fields, arguments: JsonMapping, where: str, translator: Translator) -> Fields:
    """Let arguments that every observer takes change the format; the arguments that are left are the observer's own."""
    left = {str(key): value for key, value in arguments.items() if key not in BASE_ARGUMENTS}
    if ("quant_min" in arguments) != ("quant_max" in arguments):
        raise ConfigError(f"{where}: quant_min and quant_max belong together; give both, or say it with 'bit'")
    if "quant_min" in arguments:
        integers = _integers(arguments["quant_min"], arguments["quant_max"], where)
        fields.update(integers)
        for key in ("quant_min", "quant_max"):
            translator.row(f"{where}.{key}", arguments[key], _said(integers))
    if "qscheme" in arguments:
        wanted = _torch_scheme(arguments["qscheme"], where)
        fields.update(wanted)
        if "dtype" in fields:
            fields["dtype"] = _with_sign(fields["dtype"], symmetric=wanted["symmetric"])
        if not wanted["symmetric"]:
            fields.pop("narrow_range", None)
        translator.row(f"{where}.qscheme", arguments["qscheme"], _said(wanted))
    if "pot_scale" in arguments:
        fields["power_of_two"] = _flag(arguments, "pot_scale", where)
        translator.row(f"{where}.pot_scale", arguments["pot_scale"], _said({"power_of_two": fields["power_of_two"]}))
    if "ch_axis" in arguments:
        axis = _channel_axis(arguments["ch_axis"], fields, where)
        fields.update(axis)
        translator.row(f"{where}.ch_axis", arguments["ch_axis"], _said(axis))
    if "reduce_range" in arguments:
        if _flag(arguments, "reduce_range", where):
            raise ConfigError(
                f"{where}: reduce_range halves the range; write a scheme with a 'bit' one smaller instead"
            )
        translator.row(f"{where}.reduce_range", arguments["reduce_range"], no_effect("ranges are not reduced anyway"))
    if "dtype" in arguments:
        translator.row(f"{where}.dtype", arguments["dtype"], no_effect("bit and symmetry say which integers there are"))
    if "factory_kwargs" in arguments:
        translator.row(
            f"{where}.factory_kwargs", arguments["factory_kwargs"], no_effect("it is about memory of torch's tensors")
        )
    return left


def _check_further_keys(rest: JsonMapping, where: str) -> None:
    """Further keys are arguments of an observer: one that no observer has is a typing error of the scheme."""
    known = {*BASE_ARGUMENTS, *observer_arguments()}
    for key in rest:
        if key not in known:
            near = did_you_mean(key, [*SCHEME_KEYS, *sorted(known)])
            raise ConfigError(
                f"{where}: unknown key '{key}'.{near} Known: {', '.join(SCHEME_KEYS)}, and arguments of the observer: "
                f"{', '.join(sorted(known - set(SCHEME_KEYS)))}"
            )


def observer_arguments() -> set[str]:
    """Arguments that some observer of MQBench takes, in MQBench's words."""
    own = {key for _, alias in ALIASES.items() for key in (*alias.renamed, *alias.fixed)}
    return own | {"threshold", "bins"}


def _bits(value: Any, where: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"\d+", text) or not 1 <= int(text) <= 16:
        raise ConfigError(f"{where}.bit must be a whole number from 1 to 16, got {shown(value)}")
    return int(text)


def _flag(given: JsonMapping, key: str, where: str) -> bool:
    return yes_or_no(given.get(key, SCHEME_DEFAULTS.get(key, False)), f"{where}.{key}")


def _integers(low: Any, high: Any, where: str) -> Fields:
    """The format whose integers go from `low` to `high`."""
    for bits in range(1, 17):
        half = 2 ** (bits - 1)
        if (low, high) == (0, 2 * half - 1):
            return {"dtype": f"uint{bits}"}
        if high == half - 1 and low in (-half, -half + 1) and bits > 1:
            return {"dtype": f"int{bits}", "narrow_range": low != -half}
    raise ConfigError(
        f"{where}: no format has the integers {shown(low)} .. {shown(high)}. Give 0 .. 2^b-1, or "
        "-2^(b-1) .. 2^(b-1)-1 with or without its lowest"
    )


def _torch_scheme(value: Any, where: str) -> Fields:
    name = str(value).rpartition(".")[2]
    known = ("per_tensor_symmetric", "per_tensor_affine", "per_channel_symmetric", "per_channel_affine")
    if name not in known:
        raise ConfigError(
            f"{where}: unknown qscheme {shown(value)}.{did_you_mean(name, known)} Known: {', '.join(known)}"
        )
    return {"symmetric": name.endswith("symmetric"), "per_channel": name.startswith("per_channel")}


def _channel_axis(value: Any, fields: JsonMapping, where: str) -> Fields:
    if isinstance(value, bool) or not isinstance(value, int) or value < -1:
        raise ConfigError(
            f"{where}.ch_axis must be an axis from 0 on, or -1 for one scale per tensor; got {shown(value)}"
        )
    if value == -1:
        if fields.get("per_channel"):
            raise ConfigError(f"{where}: ch_axis -1 means one scale per tensor, but per_channel is True")
        return {"per_channel": False}
    if fields.get("per_channel") is False:
        raise ConfigError(f"{where}: ch_axis {value} needs one scale per channel; set per_channel to True")
    return {"per_channel": True, "channel_axis": value}


def _with_sign(dtype: str, *, symmetric: bool) -> str:
    return f"{'int' if symmetric else 'uint'}{dtype.removeprefix('u').removeprefix('int')}"


def _said(fields: JsonMapping) -> Outcome:
    return Outcome(settings=tuple(Setting(key, value, f"{key} = {spelt(value)}") for key, value in fields.items()))


def _set(field: str, value: Any, elsewhere: str = "") -> Outcome:
    return Outcome(settings=(Setting(field, value, f"{field} = {spelt(value)}{elsewhere}"),))
