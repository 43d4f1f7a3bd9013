"""Pof2SQuantizer, FSQuantizer, MAFSQuantizer, TQTQuantizer and the user's own: their parameters, checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from onnxq.compat.translation import check_keys, shown
from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.targets.amd.dialect.builtin import Strategy
from onnxq.targets.amd.dialect.reading import boolean, choice, number, one_of, text, whole
from onnxq.types.fake_quantizers import FakeQuantizer, Kind, name_of_class, read_fake_quantizer

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

_ALL: Mapping[str, Read] = {name: read for params in KINDS.values() for name, read in params.items()}
"""What a quantizer of the user's own may have: the parameters of all, of which those of its strategy count."""

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
    """A quantizer as it was given: its kind, the parameters that were named, and the name others may share it by.

    One of the user's `own` has no kind of the tool's before `within` says which it is like.
    """

    kind: str
    params: JsonMapping
    where: str
    name: str = ""
    own: FakeQuantizer | None = None

    @property
    def power_of_two(self) -> bool:
        return is_power_of_two(self.kind)

    def within(self, strategy: Strategy) -> Quantizer:
        """The quantizer in a strategy: one of the user's own has the scales of the strategy's, or those it demands."""
        if self.own is None:
            return self
        kind, demanded = strategy.kind, self.own.implied.get("power_of_two")
        if demanded is not None and demanded is not is_power_of_two(kind):
            kind = "Pof2SQuantizer" if demanded else "FSQuantizer"
        for param in self.params:
            if param not in KINDS[kind]:
                raise ConfigError(
                    f"{self.where}: {self.own.name} has scales as {kind} has them here, which has no {param}: leave it "
                    "out"
                )
        return replace(self, kind=kind)

    def shown(self) -> JsonObject:
        """The quantizer in the document's spelling, for a row of the table."""
        kind = self.kind if self.own is None else str(self.own)
        return {**({"name": self.name} if self.name else {}), "type": kind, "params": dict(self.params)}


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
    given = {} if params_key is None else entry[params_key]
    place, name = f"{where}.{params_key}", text(entry.get("name", ""), f"{where}.name")
    if isinstance(kind, str):
        return Quantizer(kind, read_params(kind, given, place), where, name)
    return _own_quantizer(kind, given, place, where, name)


def _own_quantizer(kind: Kind, given: Any, place: str, where: str, name: str) -> Quantizer:
    """A fake-quantizer of the user's: its own arguments stand among the parameters that every quantizer has."""
    held = {argument.name for argument in kind.arguments}
    if not isinstance(given, Mapping):
        check_keys(given, (), place)
    arguments = {key: value for key, value in given.items() if key in held and value is not None}
    params = {key: value for key, value in given.items() if key not in held}
    try:
        own = read_fake_quantizer({"name": kind.name, **arguments})
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
    return Quantizer("", _read_params(_ALL, params, f"{place} of {kind.name}", place, held), where, name, own)


def read_kind(value: Any, where: str) -> str | Kind:
    """A quantizer of the tool by its name, or a fake-quantizer that a plugin has made known, by name or as a class."""
    if isinstance(value, type):
        try:
            return read_fake_quantizer(name_of_class(value)).kind
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
    name = text(value, where)
    kind = OLD_NAMES.get(name, name)
    if kind in KINDS:
        return kind
    if name == "BFPQuantizer":
        raise ConfigError(
            f"{where}: no BFPQuantizer here. Write FSQuantizer with data_format BFP16 in place of bfp; for bf16 there "
            "is convert_datatype bfloat16 for the whole model; for fp32 leave the quantizer out"
        )
    try:
        return read_fake_quantizer({"name": name}).kind
    except ConfigError:
        raise ConfigError(
            f"{where}: unknown quantizer {shown(name)}.{did_you_mean(name, KINDS)} Known: {', '.join(KINDS)}, and "
            "fake-quantizers of your own, which a file given with --plugin makes known (docs/qat.md)"
        ) from None


def read_param(kind: str, name: str, value: Any, where: str) -> Any:
    """One parameter of a quantizer, whose value stands at `where`."""
    return KINDS[kind][name](value, where)


def read_params(kind: str, given: Any, where: str) -> JsonObject:
    """The parameters of a quantizer with their values in onnxq's words; null means that a value is not set."""
    return _read_params(KINDS[kind], given, f"{where} of {kind}", where)


def _read_params(
    known: Mapping[str, Read], given: Any, owner: str, where: str, others: Collection[str] = ()
) -> JsonObject:
    """`others` are further keys that the owner takes, for the error about one that nobody does."""
    spellings = [*known, *(old for old, new in SPELLINGS.items() if new in known), *others]
    params: JsonObject = {}
    for key, value in check_keys(given, spellings, owner).items():
        name = SPELLINGS.get(key, key)
        if name in params:
            raise ConfigError(f"{where} has both spellings of '{name}': keep one")
        if value is not None:
            params[name] = known[name](value, f"{where}.{key}")
    return params
