"""extra_qconfig_dict: observers, fake-quantizers and schemes of weights and activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from onnxq.compat.mqbench.schemes import Fields, SchemeRole, read_scheme, take_base_arguments
from onnxq.compat.mqbench.targets import Target
from onnxq.compat.translation import Translator, check_keys, shown
from onnxq.errors import ConfigError
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.observers import make_observer
from onnxq.types.fake_quantizers import FakeQuantizer, read_fake_quantizer
from onnxq.types.translation import Outcome, Setting, no_effect

Letter = Literal["w", "a"]
TABLES: Mapping[Letter, str] = {"w": "weight", "a": "activation"}
KINDS = ("observer", "fakequantize", "fakeq_params", "observer_extra_args", "qscheme")
QCONFIG_KEYS = tuple(f"{letter}_{kind}" for kind in KINDS for letter in TABLES)

_EARLIER_NAMES = {"ModeMinMaxFloorObserver": "PoTModeObserver"}
"""Names that MQBench had for observers before."""

_START_OF_TRAINING = ("scale", "zero_point")
_GRADIENTS = "use_grad_scaling"
_OTHER_ROLE = {
    "weight": "is about weights alone, and without training the numbers are the same",
    "activation": "is about activations alone, so weights keep their whole range",
}
"""What is said of a fake-quantizer for weights on activations, and the other way round; MQBench takes both."""
_FLOAT_GRIDS = ("fp", "bf", "nnie")
"""Number formats, by their beginning, that have neither a zero point nor a lowest value to drop."""


@dataclass(frozen=True)
class Part:
    """What is said about weights, or about activations: w_observer, w_qscheme ... of a dictionary at `where`."""

    letter: Letter
    given: JsonMapping
    where: str

    def key(self, kind: str) -> str:
        return f"{self.where}.{self.letter}_{kind}"

    def value(self, kind: str) -> Any:
        """The value of a key; None where it is left out or says nothing."""
        return self.given.get(f"{self.letter}_{kind}")

    def table(self, kind: str) -> JsonMapping:
        value = self.value(kind)
        if value is not None and not isinstance(value, Mapping):
            raise ConfigError(f"{self.key(kind)} must hold arguments and values, it holds {shown(value)}")
        return value or {}


def translate_qconfig(translator: Translator, given: Any, target: Target, where: str = "extra_qconfig_dict") -> None:
    """Put what extra_qconfig_dict says into [weight] and [activation]."""
    check_keys(given, QCONFIG_KEYS, where)
    for letter in TABLES:
        part = Part(letter, given, where)
        if target.defaults.formats == "fixed":
            _translate_observer_only(translator, part, target)
            continue
        if target.defaults.formats == "given" and part.value("qscheme") is None:
            raise ConfigError(
                f"backend '{target.name}' has no number formats of its own: give {part.key('qscheme')}, such as "
                "{'bit': 8, 'symmetry': True, 'per_channel': " + str(letter == "w") + ", 'pot_scale': False}"
            )
        _translate_part(translator, part, target)


def _translate_part(translator: Translator, part: Part, target: Target) -> None:
    table = TABLES[part.letter]
    fields: Fields = {}
    arguments: JsonObject = {}
    sources: dict[str, str] = {}
    if part.value("qscheme") is not None:
        role = SchemeRole(target, part.letter)
        fields, further = read_scheme(part.value("qscheme"), part.key("qscheme"), translator, role)
        sources = dict.fromkeys(fields, part.key("qscheme"))
        arguments = take_base_arguments(fields, further, part.key("qscheme"), translator)
    else:
        _note_empty(translator, part, "qscheme")
    extra = part.table("observer_extra_args")
    before = dict(fields)
    own = take_base_arguments(fields, extra, part.key("observer_extra_args"), translator)
    for key in fields:
        if key not in before or fields[key] != before[key]:
            sources[key] = part.key("observer_extra_args")
    _translate_observer(translator, part, target, arguments, own)
    quantizer = _translate_fake_quantizer(translator, part, target)
    if quantizer is not None:
        _demand(translator, fields, quantizer, part, sources)
    for key, value in fields.items():
        translator.set((table, key), value, sources.get(key, part.key("qscheme")))


def _translate_observer(
    translator: Translator, part: Part, target: Target, from_scheme: JsonMapping, extra: JsonMapping
) -> None:
    """Extra arguments win over those of the scheme; without a name they are for the observer that MQBench has there."""
    named = part.value("observer")
    arguments = {**from_scheme, **extra}
    if named is None and not arguments:
        for kind in ("observer", "observer_extra_args"):
            _note_empty(translator, part, kind)
        return
    source = part.key("observer" if named is not None else "observer_extra_args")
    default = getattr(target.defaults, f"{part.letter}_observer")
    name = default if named is None else object_name(named, source)
    path = (TABLES[part.letter], "observer")
    if named is not None and not arguments:
        observer = read_observer(name, {}, source)
    else:
        observer = read_observer(name, arguments, part.key("observer_extra_args" if extra else "qscheme"), source)
    translator.set(path, observer, source)
    said = f"[{path[0]}] observer = {observer}"
    if named is not None:
        translator.row(part.key("observer"), named, said)
    for kind, values in (("qscheme", from_scheme), ("observer_extra_args", extra)):
        for key, value in values.items():
            became = Outcome(said if named is not None else f"{said}: {name} is the default of {target.family}")
            if kind == "qscheme" and key in extra:
                became = no_effect(f"{part.key('observer_extra_args')} has it too, and wins")
            elif key == "bins":
                became = no_effect("histograms of onnxq are fine enough for every quantile")
            translator.row(f"{part.key(kind)}.{key}", value, became)
    _note_empty(translator, part, "observer_extra_args")


def read_observer(name: str, arguments: JsonMapping, where: str, where_named: str | None = None) -> str:
    """An observer by its MQBench name, with MQBench's arguments, in the words of onnxq.

    `where` is the key that holds the arguments, `where_named` the one that holds the name, if it is another.
    """
    name = _EARLIER_NAMES.get(name, name)
    own = {key: value for key, value in arguments.items() if not (key == "bins" and "Quantile" in name)}
    if "name" in own:
        raise ConfigError(f"{where}: 'name' is no argument of an observer")
    if where_named is not None:
        read_observer(name, {}, where_named)
    try:
        return str(make_observer({"name": name, **own}))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _translate_fake_quantizer(translator: Translator, part: Part, target: Target) -> FakeQuantizer | None:
    named, parameters = part.value("fakequantize"), part.table("fakeq_params")
    for key in _START_OF_TRAINING:
        if key in parameters:
            translator.row(
                f"{part.key('fakeq_params')}.{key}",
                parameters[key],
                no_effect("calibration finds where training starts from"),
            )
    own = {key: value for key, value in parameters.items() if key not in _START_OF_TRAINING}
    source = part.key("fakeq_params" if named is None else "fakequantize")
    name = target.defaults.fakequantize if named is None else object_name(named, source)
    chosen = _known_fake_quantizer(name, {}, source).kind
    if _GRADIENTS in own:
        scaled, key = own.pop(_GRADIENTS), f"{part.key('fakeq_params')}.{_GRADIENTS}"
        if not isinstance(scaled, bool):
            raise ConfigError(f"{key} is True or False, got {shown(scaled)}")
        if _GRADIENTS in [argument.name for argument in chosen.arguments]:
            own[_GRADIENTS] = float(scaled)
        else:
            translator.row(key, scaled, no_effect(f"{chosen.name} has no such factor"))
    if named is None and not own:
        for kind in ("fakequantize", "fakeq_params"):
            _note_empty(translator, part, kind)
        return None
    quantizer = _known_fake_quantizer(name, own, part.key("fakeq_params"))
    path = (TABLES[part.letter], "fake_quantizer")
    suits = path[0] in quantizer.kind.roles
    translator.set(path, str(quantizer) if suits else "fixed", source)
    said = f"[{path[0]}] fake_quantizer = {quantizer}; without training: {quantizer.kind.untrained}"
    if not suits:
        said = f"[{path[0]}] fake_quantizer = fixed: {quantizer.name} {_OTHER_ROLE[quantizer.kind.roles[0]]}"
    if named is not None:
        translator.row(part.key("fakequantize"), named, said)
    for key, value in own.items():
        translator.row(f"{part.key('fakeq_params')}.{key}", value, said)
    _note_empty(translator, part, "fakeq_params")
    return quantizer if suits else None


def _known_fake_quantizer(name: str, arguments: JsonMapping, where: str) -> FakeQuantizer:
    if "name" in arguments:
        raise ConfigError(f"{where}: 'name' is no argument of a fake-quantizer")
    try:
        return read_fake_quantizer({"name": name, **arguments})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _demand(
    translator: Translator, fields: Fields, quantizer: FakeQuantizer, part: Part, sources: dict[str, str]
) -> None:
    """Let a fake-quantizer have the format that it cannot do without; where a scheme differs, a row says so."""
    wanted, key, given = dict(quantizer.implied), part.key("fakequantize"), part.value("fakequantize")
    if str(wanted.get("dtype", "")).startswith(_FLOAT_GRIDS):
        for unfit in ("symmetric", "narrow_range"):
            if fields.pop(unfit, None) is not None:
                translator.row(key, given, f"{unfit} of the scheme has no effect on {wanted['dtype']}")
    if wanted.get("symmetric") and str(fields.get("dtype", "")).startswith("uint"):
        wanted["dtype"] = str(fields["dtype"]).removeprefix("u")
    for field, value in wanted.items():
        if field in fields and fields[field] != value:
            said = Setting(field, value, f"{field} = {shown(value)} instead of the scheme's {shown(fields[field])}")
            translator.row(key, given, Outcome(settings=(said,)))
        elif field not in fields:
            said = Setting(field, value, f"{field} = {shown(value)}")
            translator.row(key, given, Outcome("which it needs", settings=(said,)))
        fields[field] = value
        sources[field] = key


def _translate_observer_only(translator: Translator, part: Part, target: Target) -> None:
    """For a target whose number format is fixed MQBench reads the names of observers and nothing else."""
    named = part.value("observer")
    if part.value("fakequantize") is not None:
        key = part.key("fakequantize")
        _known_fake_quantizer(object_name(part.value("fakequantize"), key), {}, key)
    for kind in ("fakeq_params", "observer_extra_args"):
        part.table(kind)
    if part.value("qscheme") is not None:
        read_scheme(part.value("qscheme"), part.key("qscheme"), Translator(""), SchemeRole(target, part.letter))
    if named is not None:
        observer = read_observer(object_name(named, part.key("observer")), {}, part.key("observer"))
        translator.set((TABLES[part.letter], "observer"), observer, part.key("observer"))
        translator.row(part.key("observer"), named, f"[{TABLES[part.letter]}] observer = {observer}")
    for kind in KINDS[1:]:
        if f"{part.letter}_{kind}" in part.given:
            became = no_effect(f"{target.family} has one number format, and MQBench reads only observers' names for it")
            translator.row(part.key(kind), part.value(kind), became)


def _note_empty(translator: Translator, part: Part, kind: str) -> None:
    """A key that is there and says nothing gets its row too."""
    if f"{part.letter}_{kind}" in part.given and not part.value(kind):
        translator.row(part.key(kind), part.value(kind), no_effect("it says nothing, so the target's choice stays"))


def object_name(thing: Any, where: str = "") -> str:
    """The name of a class, or a name itself, without the modules in front."""
    name = thing if isinstance(thing, str) else getattr(thing, "__name__", None)
    if not isinstance(name, str):
        raise ConfigError(f"{where + ': ' if where else ''}a name or a class is expected, not {shown(thing)}")
    return name.rpartition(".")[2] if name.replace(".", "_").isidentifier() else name  # not the dot of a number
