"""What of a layer gets which quantizer: quant_config of the document, and the lists of the shipped files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnxq.compat.translation import check_keys, shown
from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping
from onnxq.targets.amd.dialect.layers import KERAS, LayerType
from onnxq.targets.amd.dialect.quantizers import Quantizer, read_quantizer
from onnxq.targets.amd.dialect.reading import entries, text

TARGET_TYPES = ("weight", "bias", "output")
CONSTANTS = ("weight", "bias")

_LISTS = {
    "weight": ("quantizable_weights", "weight_quantizers"),
    "bias": ("quantizable_biases", "bias_quantizers"),
    "activation": ("quantizable_activations", "activation_quantizers"),
    "output": ("quantizable_outputs", "output_quantizers"),
    "input": ("quantizable_inputs", "input_quantizers"),
}
LIST_KEYS = tuple(key for pair in _LISTS.values() for key in pair)

_PARTS = {"activation": "output", "output": "output", "input": "activation"}
"""Role in a shipped file -> part of a node: the activation of a layer is its result behind that activation."""


@dataclass(frozen=True)
class Target:
    """A part of a node (weight, bias, output, activation) with its quantizer.

    shared   the name of the quantizer that it asks to share; its own is then that one
    group    the name that this quantizer is shared by, on its owner too; "" where nobody shares it
    off      no quantizer: the list of what is quantizable is there and empty
    owner    the part that a shared quantizer belongs to; "" where it is the target's own
    """

    part: str
    where: str
    quantizer: Quantizer | None = None
    shared: str = ""
    group: str = ""
    off: bool = False
    owner: str = ""

    @property
    def role(self) -> str:
        """Whose defaults its quantizer has."""
        part = self.owner or self.part
        return part if part in CONSTANTS else "activation"

    @property
    def users(self) -> str:
        """Whose values of the user replace its own: input_* are also those of what layers read, as in the tool."""
        return "input" if self.part == "activation" else self.role


def read_targets(entry: JsonMapping, types: Sequence[LayerType], where: str) -> tuple[Target, ...]:
    """All targets of an entry, in either spelling."""
    from_lists = [target for role in _LISTS for target in _from_lists(entry, role, types, where)]
    if "quant_config" not in entry:
        return tuple(from_lists)
    if from_lists:
        raise ConfigError(f"{where} has both quant_config and lists of quantizers: keep one of them")
    given = entries(entry["quant_config"], f"{where}.quant_config")
    found = [_target(item, types, f"{where}.quant_config[{position}]") for position, item in enumerate(given)]
    seen: dict[str, str] = {}
    for target in found:
        if target.part in seen:
            raise ConfigError(f"{target.where} is for the {target.part}, as {seen[target.part]} is: keep one of them")
        seen[target.part] = target.where
    return tuple(found)


def _target(given: Any, types: Sequence[LayerType], where: str) -> Target:
    item = check_keys(given, ("target_name", "target_type", "shared_quantizer", "quantizer_config"), where)
    kind = text(item.get("target_type", ""), f"{where}.target_type")
    if kind not in TARGET_TYPES:
        near = did_you_mean(kind, TARGET_TYPES)
        raise ConfigError(f"{where}.target_type cannot be {shown(kind)}.{near} Known: {', '.join(TARGET_TYPES)}")
    name = text(item.get("target_name", ""), f"{where}.target_name")
    part = kind if kind == "output" else _constant(name, kind, types, f"{where}.target_name")
    shared = text(item.get("shared_quantizer") or "", f"{where}.shared_quantizer")
    config = item.get("quantizer_config")
    if bool(shared) == bool(config):
        both = "both" if shared else "neither"
        raise ConfigError(f"{where} has {both} of shared_quantizer and quantizer_config: give exactly one")
    quantizer = read_quantizer(config, f"{where}.quantizer_config") if config else None
    return Target(part, where, quantizer, shared)


def _constant(name: str, kind: str, types: Sequence[LayerType], where: str) -> str:
    """The part of a node that a constant is by its name in Keras; `kind` where it has no name, or the layers none."""
    known: dict[str, str] = {}
    for layer in types or KERAS.values():
        known.update(layer.constants)
    if not name or not known:
        return kind
    if name not in known:
        raise ConfigError(f"{where}: the layer has no '{name}'.{did_you_mean(name, known)} It has: {', '.join(known)}")
    if known[name] != kind and name != "beta":  # the files count beta of a normalization among the weights
        raise ConfigError(f"{where}: '{name}' is a {known[name]}, target_type says {kind}")
    return known[name]


def with_shared(targets: Sequence[Target]) -> list[Target]:
    """The targets of a pattern and of its inputs, those that share a quantizer with that quantizer in place of a name.

    Calibration measures computed tensors and looks at constants, so that a quantizer is for one of these kinds.
    """
    owners: dict[str, Target] = {}
    for target in targets:
        name = "" if target.quantizer is None else target.quantizer.name
        if name in owners:
            raise ConfigError(f"{target.where}: the name '{name}' is taken in this pattern by {owners[name].where}")
        if name:
            owners[name] = target
    wanted = {target.shared for target in targets}
    found = []
    for target in targets:
        name = target.shared or ("" if target.quantizer is None else target.quantizer.name)
        if target.shared:
            owner = owners.get(name)
            if owner is None:
                raise ConfigError(
                    f"{target.where}.shared_quantizer: no quantizer of this pattern is called '{name}'."
                    f"{did_you_mean(name, owners)} Names: {', '.join(owners) or 'none'}"
                )
            if (owner.part in CONSTANTS) != (target.part in CONSTANTS):
                raise ConfigError(
                    f"{target.where}.shared_quantizer: '{name}' is the quantizer of the {owner.part}, this is the "
                    f"{target.part}. Constants share with constants, outputs with outputs: give it a quantizer_config"
                )
            target = replace(target, quantizer=owner.quantizer, owner=owner.part)
        found.append(replace(target, group=name if name in wanted else ""))
    return found


def _from_lists(entry: JsonMapping, role: str, types: Sequence[LayerType], where: str) -> list[Target]:
    """The targets of one pair of lists, such as quantizable_weights and weight_quantizers."""
    names_key, quantizers_key = _LISTS[role]
    if names_key not in entry and quantizers_key not in entry:
        return []
    names = entries(entry.get(names_key, []), f"{where}.{names_key}")
    quantizers = entries(entry.get(quantizers_key, []), f"{where}.{quantizers_key}")
    if len(names) != len(quantizers):
        raise ConfigError(
            f"{where}: {names_key} has {len(names)} and {quantizers_key} {len(quantizers)} entries: give as many"
        )
    if not names:
        return [Target(_PARTS.get(role, role), f"{where}.{names_key}", off=True)]
    found = []
    for position, (name, given) in enumerate(zip(names, quantizers, strict=True)):
        part = _PARTS.get(role, role)
        if role in ("weight", "bias"):
            part = _constant(text(name, f"{where}.{names_key}[{position}]"), role, types, f"{where}.{names_key}")
        elif role in ("output", "input") and name not in (0, "0", ""):
            raise ConfigError(f"{where}.{names_key}: only 0 can be quantized on its own, got {shown(name)}")
        at = f"{where}.{quantizers_key}[{position}]"
        found.append(Target(part, at, read_quantizer(given, at)))
    return found
