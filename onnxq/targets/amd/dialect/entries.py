"""layer_quantize_config applied: every pattern becomes settings of the nodes that it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onnxq.compat.translation import counted
from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph import Node
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.place.ties import Ties
from onnxq.targets.amd.dialect.axes import activation_axis, kernel_axis
from onnxq.targets.amd.dialect.constraints import has_bias, held_values
from onnxq.targets.amd.dialect.formats import Settings, described, one_scale, settings_of
from onnxq.targets.amd.dialect.patterns import Match, Matcher, Pattern
from onnxq.targets.amd.dialect.registry import Registry, check_kind, is_relu_like
from onnxq.targets.amd.dialect.targets import Target
from onnxq.types.translation import Outcome, joined, no_effect

FULL_STRATEGY = 4
"""Entries that name types alone: so many are a list of all that a tool knows, as the shipped strategies are."""

_SHOWN = 6
"""Names in a row or in an error."""

_FOLDING = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_MAKING_BIASES = ("BatchNormalization", "Add", "Sub", "Mul", "Div")
"""What passes fold into a layer, which has a bias then."""


@dataclass
class Applied:
    """What a target has become, node by node."""

    target: Target
    settings: Settings = field(default_factory=Settings)
    nodes: dict[str, None] = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)
    """Why a target has no effect -> the nodes on which it has none."""


class Entries:
    """The entries of a strategy on their way into settings; later ones replace what earlier ones set."""

    def __init__(self, registry: Registry, patterns: Sequence[Pattern], *, folds_batchnorm: bool) -> None:
        self.registry = registry
        self.graph = registry.graph
        self.patterns = patterns
        self.matcher = Matcher(self.graph, registry.names, patterns)
        self.folds_batchnorm = folds_batchnorm
        self.lists_types = sum(pattern.is_bare_type for pattern in patterns) >= FULL_STRATEGY
        self._applied: dict[str, Applied] = {}

    def apply(self) -> None:
        for pattern in self.patterns:
            matches = self.matcher.find(pattern)
            key = pattern.where
            if not matches:
                self._nothing_found(pattern)
                continue
            for match in matches:
                self._apply_match(match)
            self._share(pattern, matches)
            nodes = [str(match[0][1].name) for match in matches]
            became = f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}: {counted(nodes, _SHOWN)}"
            if not pattern.targets and not pattern.inputs:
                became += "; no quantizer of its own, so they stay as the strategy has them"
            self.registry.translator.row(key, _conditions(pattern), became)
            self._write_rows()

    def _nothing_found(self, pattern: Pattern) -> None:
        if self.lists_types and pattern.is_bare_type:
            self.registry.translator.row(pattern.where, _conditions(pattern), "no layer of this type in the model")
            return
        raise ConfigError(f"{pattern.where} matches no layer of the model. {self._why_nothing(pattern)}")

    def _why_nothing(self, pattern: Pattern) -> str:
        typed = self.matcher.of_type(pattern)
        if not typed:
            operators = ", ".join(sorted({str(node.op) for node in self.graph.nodes()}))
            return f"It has no layer of type {pattern.layer_type}; its operators: {operators}"
        if pattern.layer_name:
            names = [name for node in typed for name in self.registry.names.of(node)]
            near = did_you_mean(pattern.layer_name, names)
            named = replace(pattern, params=None, inputs=())
            if not self.matcher.find(named):
                return (
                    f"No layer of that type has a name like '{pattern.layer_name}'.{near} "
                    f"Names: {counted(names, _SHOWN)}"
                )
        for name, wanted in (pattern.params or {}).items():
            alone = replace(pattern, layer_name="", params={name: wanted}, inputs=())
            if not self.matcher.find(alone):
                held = ", ".join(held_values(self.graph, typed, name)) or "none, it is no parameter of theirs"
                return f"No layer of that type has {name} {wanted!r}; the values there: {held}"
        if pattern.inputs:
            shown = [f"'{node.name}' reads {self._sources(node)}" for node in typed[:4]]
            return f"None of that type has these inputs in this order: {'; '.join(shown)}"
        names = [str(node.name) for node in typed]
        return f"None fulfils all of its conditions together; of the type are: {counted(names, _SHOWN)}"

    def _sources(self, node: Node) -> str:
        made = [self.graph.producer(tensor) for tensor in node.inputs if tensor.name]
        return ", ".join(str(other.op) for other in made if other is not None) or "inputs of the model"

    # ---- one place --------------------------------------------------------------------------------------------------

    def _apply_match(self, match: Match) -> None:
        for pattern, node in match:
            for target in pattern.targets:
                self._apply_target(target, node)

    def _apply_target(self, target: Target, node: Node) -> None:
        applied = self._applied.setdefault(target.where, Applied(target))
        if reason := self._without_effect(target, node):
            applied.left.setdefault(reason, []).append(str(node.name))
            return
        applied.settings = Settings({"skip": True}) if target.off else self._settings(target, node)
        for name, value in applied.settings.fields.items():
            source = self.registry.users_key(target.users, name) or target.where
            self.registry.translator.set(("node", str(node.name), target.part, name), value, source)
        applied.nodes[str(node.name)] = None

    def _share(self, outer: Pattern, matches: Sequence[Match]) -> None:
        """Give the quantizers that are shared one name; places of the pattern that overlap share together."""
        ties = Ties()
        members: dict[str, tuple[Target, Node]] = {}
        for match in matches:
            first: dict[str, str] = {}
            for pattern, node in match:
                for target in pattern.targets:
                    if target.group and node.name in self._applied[target.where].nodes:
                        member = f"{target.group} of {target.part} of {node.name}"
                        members[member] = (target, node)
                        ties.join(first.setdefault(target.group, member), member)
        for member, (target, node) in members.items():
            settings = self._applied[target.where].settings
            if settings.shares:
                path = ("node", str(node.name), target.part, "share")
                leader = members[ties.leader(member)][1].name
                self.registry.translator.set(path, f"{target.group} of {leader} ({outer.where})", target.where)
                settings.fields["share"] = target.group

    def _settings(self, target: Target, node: Node) -> Settings:
        role = target.role
        assert target.quantizer is not None
        quantizer = target.quantizer.within(self.registry.strategy)
        check_kind(quantizer, self.registry.strategy)
        params = {**self.registry.base(role, quantizer.kind), **quantizer.params, **self._users(target.users, node)}
        wanted = one_scale(params, target) if target.group else params
        made = settings_of(quantizer.kind, wanted, role, target.where, quantizer.own)
        axis = params.get("channel_axis", -1)
        if made.fields.get("per_channel") or made.fields.get("dtype") == "bfp16":
            if role == "weight":
                found = kernel_axis(self.graph, node, axis, target.where)
            elif role == "activation" and ("channel_axis" in quantizer.params or made.fields.get("per_channel")):
                shape = self.graph.shape(node.outputs[0])
                found = activation_axis(None if shape is None else len(shape), axis, target.where)
            else:
                found = None
            if found is not None:
                made.fields["channel_axis"] = found
        if "max_quantize_pos" in quantizer.params:
            self.registry.lift_highest_position(quantizer.params["max_quantize_pos"], target.where)
        return made

    def _users(self, role: str, node: Node) -> JsonMapping:
        """The user's values for all quantizers of a role; unsigned and symmetric is for layers behind a Relu alone."""
        values = dict(self.registry.user[role])
        if role == "activation" and self.registry.only_behind_relu() and not is_relu_like(self.graph, node):
            values.pop("unsigned", None)
        return values

    def _without_effect(self, target: Target, node: Node) -> str:
        """Why a target can do nothing on a node; "" where it can."""
        if node.op == "BatchNormalization" and self.folds_batchnorm:
            producer = self.graph.producer(node.inputs[0])
            if producer is not None and producer.op in _FOLDING and len(self.graph.consumers(node.inputs[0])) == 1:
                return "folded into the layer before"
        readers = {use.node.op for use in self.graph.consumers(node.outputs[0])}
        if target.part == "bias" and has_bias(self.graph, node) is False and not readers & set(_MAKING_BIASES):
            return "there is no bias"
        return ""

    def _write_rows(self) -> None:
        """One row for each target that the last pattern and what it is made of have set."""
        for where, applied in self._applied.items():
            parts: list[Outcome] = []
            if applied.nodes:
                on = f"{applied.target.part} of {counted(list(applied.nodes), _SHOWN)}"
                parts = list(map(Outcome, (f"{on}: {described(applied.settings.fields)}", *applied.settings.remarks)))
                if applied.target.group and not applied.settings.shares:
                    parts.append(Outcome("there is no scale to share, so they have the same format and no more"))
            parts += [no_effect(reason, f" on {counted(nodes, _SHOWN)}") for reason, nodes in applied.left.items()]
            quantizer = applied.target.quantizer
            value: Any = [] if quantizer is None else quantizer.shown()
            if applied.target.shared:
                value = {"shared_quantizer": applied.target.shared}
            self.registry.translator.row(where, value, joined(parts))
        self._applied.clear()


def _conditions(pattern: Pattern) -> JsonObject:
    """What a pattern asks of a layer, as it was given."""
    found: JsonObject = {}
    if pattern.name:
        found["pattern_name"] = pattern.name
    if pattern.layer_type:
        found["layer_type"] = pattern.layer_type
    if pattern.layer_name:
        found["layer_name"] = pattern.layer_name
    if pattern.params:
        found["layer_params"] = dict(pattern.params)
    if pattern.inputs:
        found["layer_inputs"] = [
            {"pattern": inner.refers_to} if inner.refers_to else _conditions(inner) for inner in pattern.inputs
        ]
    return found
