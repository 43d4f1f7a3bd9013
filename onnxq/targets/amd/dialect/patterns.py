"""The pattern language of layer_quantize_config: a layer by type, name, parameters and what its inputs are.

{"pattern_name": "gate", "layer_type": "Multiply", "layer_inputs": [{"layer_type": ""}, {"layer_type": "Activation"}]}

layer_inputs names what makes each input that is computed, in order; an empty list asks nothing of them. An entry of it
is a pattern itself, or {"pattern": name} for one that has a name. A Transpose that a converter has put between two
layers is looked through.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnxq.compat.translation import check_keys, shown
from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph import Graph, Node
from onnxq.json_file import JsonMapping
from onnxq.targets.amd.dialect.constraints import check_parameters, fulfils
from onnxq.targets.amd.dialect.layers import INPUT_LAYER, LayerType, computes_floats, is_parameter, layer_types
from onnxq.targets.amd.dialect.naming import Names
from onnxq.targets.amd.dialect.reading import entries, text
from onnxq.targets.amd.dialect.targets import LIST_KEYS, Target, read_targets, with_shared

KEYS = ("pattern_name", "layer_type", "layer_name", "layer_params", "layer_inputs", "quant_config", *LIST_KEYS)

_BETWEEN_LAYERS = ("Transpose", "Identity")
"""Operators that converters put between layers; no layer of the network that they were made from."""

Match = list[tuple["Pattern", Node]]
"""The patterns that a place in the graph fulfils, the outer one first, each with its node."""


@dataclass(frozen=True)
class Pattern:
    """One entry: what a layer has to be, and the quantizers that it gets then. `refers_to` names another pattern."""

    where: str
    name: str = ""
    layer_type: str = ""
    types: tuple[LayerType, ...] = ()
    layer_name: str = ""
    params: JsonMapping | None = None
    inputs: tuple[Pattern, ...] = ()
    targets: tuple[Target, ...] = ()
    refers_to: str = ""

    @property
    def is_bare_type(self) -> bool:
        """Whether it names types and nothing else, as the entries of shipped strategies do."""
        return bool(self.types) and not (self.layer_name or self.params or self.inputs)


def read_patterns(given: Any, graph: Graph, custom: Collection[str], where: str) -> list[Pattern]:
    """All entries of layer_quantize_config; names must be unique, and references must lead somewhere."""
    patterns = [
        _with_shared(read_pattern(entry, graph, custom, f"{where}[{position}]"))
        for position, entry in enumerate(entries(given, where))
    ]
    every = [pattern for outer in patterns for pattern in _with_inputs(outer)]
    names: dict[str, str] = {}
    for pattern in every:
        if pattern.name in names:
            raise ConfigError(f"{pattern.where}: pattern_name '{pattern.name}' is taken by {names[pattern.name]}")
        if pattern.name:
            names[pattern.name] = pattern.where
    for pattern in every:
        if pattern.refers_to and pattern.refers_to not in names:
            near = did_you_mean(pattern.refers_to, names)
            known = ", ".join(names) or "none"
            raise ConfigError(f"{pattern.where}: no pattern is called '{pattern.refers_to}'.{near} Names: {known}")
    _check_circles(every)
    return patterns


def _with_shared(pattern: Pattern) -> Pattern:
    """The pattern with shared quantizers in their places; a name may be that of an input's quantizer, too."""
    found = iter(with_shared([target for inner in _with_inputs(pattern) for target in inner.targets]))

    def rebuilt(held: Pattern) -> Pattern:
        targets = tuple(next(found) for _ in held.targets)
        return replace(held, targets=targets, inputs=tuple(rebuilt(inner) for inner in held.inputs))

    return rebuilt(pattern)


def _check_circles(patterns: Sequence[Pattern]) -> None:
    """Refuse patterns that contain themselves by way of references, whether or not the model leads there."""
    refers = {
        pattern.name: [inner for inner in _with_inputs(pattern) if inner.refers_to]
        for pattern in patterns
        if pattern.name
    }

    def follow(name: str, chain: tuple[str, ...]) -> None:
        for inner in refers[name]:
            if inner.refers_to in chain:
                circle = " -> ".join((*chain, inner.refers_to))
                raise ConfigError(f"{inner.where}: patterns refer to each other in a circle: {circle}")
            follow(inner.refers_to, (*chain, inner.refers_to))

    for name in refers:
        follow(name, (name,))


def _with_inputs(pattern: Pattern) -> Iterator[Pattern]:
    yield pattern
    for inner in pattern.inputs:
        yield from _with_inputs(inner)


def read_pattern(given: Any, graph: Graph, custom: Collection[str], where: str, *, inner: bool = False) -> Pattern:
    """One entry; inside layer_inputs it may also be a reference or an InputLayer."""
    entry = check_keys(given, (*KEYS, "pattern") if inner else KEYS, where)
    if "pattern" in entry:
        if len(entry) > 1:
            raise ConfigError(f"{where}: 'pattern' refers to another pattern and stands alone")
        return Pattern(where, refers_to=text(entry["pattern"], f"{where}.pattern"))
    layer_type = text(entry.get("layer_type") or "", f"{where}.layer_type")
    is_input = inner and layer_type.rpartition(".")[2] == INPUT_LAYER
    types = () if is_input else layer_types(layer_type, custom, f"{where}.layer_type")
    params = entry.get("layer_params") or {}
    check_parameters(check_keys(params, params, f"{where}.layer_params"), graph, f"{where}.layer_params")
    return Pattern(
        where=where,
        name=text(entry.get("pattern_name") or "", f"{where}.pattern_name"),
        layer_type=INPUT_LAYER if is_input else layer_type,
        types=types,
        layer_name=_regex(entry.get("layer_name") or "", f"{where}.layer_name"),
        params=dict(params),
        inputs=tuple(
            read_pattern(item, graph, custom, f"{where}.layer_inputs[{position}]", inner=True)
            for position, item in enumerate(entries(entry.get("layer_inputs") or [], f"{where}.layer_inputs"))
        ),
        targets=read_targets(entry, types, where),
    )


def _regex(value: Any, where: str) -> str:
    given = text(value, where)
    try:
        re.compile(given)
    except re.error as error:
        raise ConfigError(f"{where}: {shown(given)} is not a regular expression: {error}") from None
    return given


class Matcher:
    """Finds the places of a graph that patterns describe."""

    def __init__(self, graph: Graph, names: Names, patterns: Sequence[Pattern]) -> None:
        self.graph = graph
        self.names = names
        self.nodes = [node for node in graph.nodes() if computes_floats(graph, node)]
        self.patterns = {pattern.name: pattern for outer in patterns for pattern in _with_inputs(outer) if pattern.name}
        self._of_type: dict[str, list[Node]] = {}

    def find(self, pattern: Pattern) -> list[Match]:
        """Every place, in the order of the nodes."""
        found = (self._within_type(pattern, node) for node in self.of_type(pattern))
        return [match for match in found if match is not None]

    def of_type(self, pattern: Pattern) -> list[Node]:
        """The nodes of a pattern's types, whatever else it asks for; many patterns may ask for the same."""
        if pattern.layer_type not in self._of_type:
            self._of_type[pattern.layer_type] = [node for node in self.nodes if self._type_fits(pattern, node)]
        return self._of_type[pattern.layer_type]

    def _at(self, pattern: Pattern, node: Node) -> Match | None:
        if pattern.refers_to:
            return self._at(self.patterns[pattern.refers_to], node)
        return self._within_type(pattern, node) if self._type_fits(pattern, node) else None

    def _within_type(self, pattern: Pattern, node: Node) -> Match | None:
        """The match at a node whose type fits."""
        if pattern.params and not fulfils(self.graph, node, pattern.params):
            return None
        if pattern.layer_name and not any(re.fullmatch(pattern.layer_name, name) for name in self.names.of(node)):
            return None
        found: Match = [(pattern, node)]
        if pattern.inputs:
            sources = self._sources(node)
            if len(sources) != len(pattern.inputs):
                return None
            for wanted, tensor in zip(pattern.inputs, sources, strict=True):
                deeper = self._behind(wanted, tensor)
                if deeper is None:
                    return None
                found += deeper
        return found

    def _type_fits(self, pattern: Pattern, node: Node) -> bool:
        return not pattern.types or any(kind.matches(self.graph, node) for kind in pattern.types)

    def _behind(self, pattern: Pattern, tensor: Any) -> Match | None:
        producer = self.graph.producer(tensor)
        is_input = pattern.layer_type == INPUT_LAYER
        if producer is None:
            asks = pattern.types or pattern.layer_name or pattern.params or pattern.inputs or pattern.refers_to
            return [] if is_input or not asks else None
        found = None if is_input else self._at(pattern, producer)
        if found is None and producer.op in _BETWEEN_LAYERS:
            return self._behind(pattern, producer.inputs[0])
        return found

    def _sources(self, node: Node) -> list[Any]:
        """The inputs that are computed from the model's inputs; parameters and shapes are not."""
        found = []
        for tensor in node.inputs:
            kind = self.graph.dtype(tensor) if tensor.name else None
            if tensor.name and not is_parameter(self.graph, tensor) and (kind is None or kind.kind not in "iub"):
                found.append(tensor)
        return found
