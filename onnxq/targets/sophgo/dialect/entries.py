"""`object_type` and `module_name`: settings for the weights, or for the results, of types and of single modules.

    {'mode': 'weight', 'bit': '8', 'wfakequantize': 'FixedFakeQuantize', 'wobserver': 'MinMaxObserver'}

`mode` says which of the two an entry is about. Sophgo-mq puts the quantizer of an activation behind the module that
makes it, so an activation of a module is its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from onnxq.compat.modules import Exported
from onnxq.compat.mqbench.qconfig import object_name, read_observer
from onnxq.compat.torch_names import torch_name
from onnxq.compat.translation import Translator, check_keys, counted, shown, spelt, yes_or_no
from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.targets.sophgo.dialect.fit import Entry, check_fit
from onnxq.targets.sophgo.dialect.nodes import Found, Model, of_module, of_type, result_nodes, weight_nodes
from onnxq.targets.sophgo.names import MATRICES
from onnxq.types.fake_quantizers import FakeQuantizer, read_fake_quantizer
from onnxq.types.translation import no_effect

MODES: Mapping[str, tuple[str, ...]] = {
    "activation": ("afakequantize", "aobserver"),
    "weight": ("wfakequantize", "wobserver", "wperchannel"),
}
"""Mode of an entry -> the keys that belong to it."""

_KNOWN = ("mode", "bit", *MODES["activation"], *MODES["weight"])
_KINDS: Mapping[str, Callable[[Exported, object, str], Found]] = {"object_type": of_type, "module_name": of_module}
"""The dictionaries, from general to specific, and how their keys become nodes."""

_PARTS = {"activation": "output", "weight": "weight"}
"""Mode of an entry -> the part of a node in onnxq's configuration."""

_CHANNELS = {"per_channel": True}

Fields = dict[str, JsonObject]
"""Key of an entry -> fields of onnxq's table that it sets."""


def translate_entries(given: JsonMapping, model: Model, out: Translator, key: str) -> None:
    """Settings of single nodes; those of `module_name` come later, so they win over those of `object_type`."""
    for kind, find in _KINDS.items():
        if kind in given and not given[kind]:
            out.row(f"{key}.{kind}", given[kind], no_effect("it says nothing"))
        for thing, entry in _pairs(given.get(kind), f"{key}.{kind}"):
            where = f"{key}.{kind}[{shown(torch_name(thing) if callable(thing) else thing)}]"
            _translate_entry(entry, where, find(model.exported, thing, where), model, out)


def _pairs(given: Any, where: str) -> Iterator[tuple[object, Any]]:
    """The entries of a dictionary, or of a list of pairs."""
    if given is None:
        return
    if isinstance(given, Mapping):
        yield from given.items()
        return
    pairs = isinstance(given, list | tuple) and all(isinstance(item, list | tuple) and len(item) == 2 for item in given)
    if not pairs:
        raise ConfigError(f"{where} must hold an entry for each module or type, it holds {shown(given)}")
    yield from ((thing, entry) for thing, entry in given)


def _translate_entry(given: Any, where: str, found: Found, model: Model, out: Translator) -> None:
    values = check_keys(given, _KNOWN, where)
    entry = _read_entry(values, where)
    fields = _fields(entry, values)
    _check_part(entry, found)
    is_input = found.part == "input"
    part = _PARTS[entry.mode]
    out.row(
        f"{where}.mode", entry.mode, f"what the entry is about: [{'tensor.NAME' if is_input else f'node.NAME.{part}'}]"
    )
    nothing = _nothing_to_change(entry, found, model)
    if nothing:
        for key in values:
            if key != "mode":
                out.row(f"{where}.{key}", values[key], no_effect(nothing))
        return
    nodes = found.nodes if is_input else _nodes(entry, found, model.graph)
    fit = check_fit(entry, replace(found, nodes=nodes), model)
    if fit.sets_bits:
        fields["bit"] = {"bits": entry.bits}
    note = f" ({found.note})" if found.note else ""
    for key in values:
        if key == "mode":
            continue
        targets, left = _with_channels(entry, fit.nodes, model) if fields.get(key) == _CHANNELS else (fit.nodes, "")
        for name in targets:
            for field, value in fields.get(key, {}).items():
                path = ("tensor", name, field) if is_input else ("node", name, part, field)
                out.set(path, value, f"{where}.{key}")
        said = ", ".join(f"{field} = {spelt(value)}" for field, value in fields.get(key, {}).items())
        what = f"input {counted(targets)}" if is_input else f"{part} of {counted(targets)}"
        became = f"{what}: {said}{left or fit.note}{note}" if said else ""
        out.row(f"{where}.{key}", values[key], became or no_effect(_silence(key, values, model)))


def _check_part(entry: Entry, found: Found) -> None:
    """Refuse the name of a quantizer that is not what the mode speaks of."""
    known = {"weight": ("", "weight"), "activation": ("", "output", "input")}
    if found.part in known[entry.mode]:
        return
    if found.part == "bias":
        raise ConfigError(
            f"{entry.where}: a bias has no quantizer of its own, its scale is that of the input times that of the "
            "weight. Leave the entry out"
        )
    raise ConfigError(
        f"{entry.where} is the quantizer of {'a weight' if found.part == 'weight' else 'an activation'}, but mode is "
        f"'{entry.mode}'. Name the module instead, or use the other mode"
    )


def _read_entry(values: JsonMapping, where: str) -> Entry:
    mode = values.get("mode")
    if not isinstance(mode, str) or mode not in MODES:
        raise ConfigError(
            f"{where}.mode says what the entry is about, it cannot be {shown(mode)}."
            f"{did_you_mean(str(mode), MODES)} Known: {', '.join(MODES)}"
        )
    other = "weight" if mode == "activation" else "activation"
    for key in MODES[other]:
        if key in values:
            raise ConfigError(
                f"{where}.{key} is about the {other}, but mode is '{mode}'. Leave it out, or set mode to '{other}', "
                f"which has {', '.join(MODES[other])}"
            )
    fake = f"{mode[0]}fakequantize"
    return Entry(where, mode, _read_bits(values.get("bit"), where), _read_fake(values.get(fake), f"{where}.{fake}"))


def _read_bits(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or str(value) not in ("4", "8", "16"):
        raise ConfigError(f"{where}.bit cannot be {shown(value)}. Known: 8 and 4; 16 beside a 16-bit float format")
    return int(value)


def _read_fake(value: Any, where: str) -> FakeQuantizer | None:
    if value is None:
        return None
    try:
        return read_fake_quantizer(object_name(value))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _read_observer(value: Any, where: str) -> str:
    try:
        name = object_name(value)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return read_observer(name, {}, where)


def _fields(entry: Entry, values: JsonMapping) -> Fields:
    """What the keys set, apart from `bit`. A dtype that a fake-quantizer has is the model's precision already."""
    letter = entry.mode[0]
    fields: Fields = {}
    if entry.fake is not None:
        implied = {key: value for key, value in entry.fake.implied.items() if key != "dtype"}
        fields[f"{letter}fakequantize"] = {"fake_quantizer": str(entry.fake), **implied}
    observer = values.get(f"{letter}observer")
    if observer is not None:
        key = f"{letter}observer"
        fields[key] = {"observer": _read_observer(observer, f"{entry.where}.{key}")}
    if values.get("wperchannel") is not None:
        fields["wperchannel"] = {"per_channel": yes_or_no(values["wperchannel"], f"{entry.where}.wperchannel")}
    return fields


def _nothing_to_change(entry: Entry, found: Found, model: Model) -> str:
    if not found.nodes:
        return "the model has nothing of this type"
    if entry.mode == "activation" and model.target.weight_only:
        return "quantmode weight_only has no quantizers on activations"
    return ""


def _nodes(entry: Entry, found: Found, graph: Graph) -> list[str]:
    if entry.mode == "activation":
        return result_nodes(graph, found.nodes)
    remedy = "Use mode 'activation', or name a convolution or linear layer"
    return weight_nodes(graph, found.nodes, f"{entry.where}: mode is 'weight'", remedy)


def _with_channels(entry: Entry, nodes: list[str], model: Model) -> tuple[list[str], str]:
    """The layers that can have a scale for each channel, and a note about the others."""
    matrices = [name for name in nodes if model.graph.node(name).op in MATRICES and not model.target.weight_only]
    if matrices == nodes:
        raise ConfigError(
            f"{entry.where}.wperchannel: tpu-mlir has one scale for the matrix of a linear layer: {counted(nodes)}. "
            "Leave it out, or set it to False"
        )
    note = f"; not of {counted(matrices)}: a matrix has one scale" if matrices else ""
    return [name for name in nodes if name not in matrices], note


def _silence(key: str, values: JsonMapping, model: Model) -> str:
    return f"{model.precision} has its own bits" if key == "bit" and values[key] is not None else "it says nothing"
