"""What the user wants of the nodes and tensors of one graph: overrides resolved to names, the most specific first.

A tensor has one quantizer, so everybody who has a say in it counts: the node that makes it (`output`), the nodes that
read it (`activation`), and what is said about the tensor itself. Field by field the most specific level wins, then the
most specific pattern, then what was written last; between nodes of equal weight the format with more bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxq.errors import ConfigError, SpecError
from onnxq.graph import Graph, Node
from onnxq.match import names_matching, rank_among
from onnxq.types.number_format import number_format
from onnxq.types.overrides import (
    FORMAT_FIELDS,
    IN_BACKENDS,
    LEVELS,
    NOT_IN_BACKENDS,
    PARTS,
    Override,
    OverrideFields,
    OverrideSet,
    changed,
)
from onnxq.types.spec import QuantSpec
from onnxq.types.unlike import UnlikeJoin


@dataclass(frozen=True)
class Pick:
    """A value that somebody wants, where it was said, and its weight.

    rank    level, and how exact the pattern is
    order   place among the overrides; -1 for what is said of the whole model
    """

    value: Any
    source: str
    rank: tuple[int, int]
    order: int = -1


Picks = dict[str, Pick]
"""Field of a QuantizerOverride -> what won."""

_EVERYWHERE = -1
_FOLDED = ("BatchNormalization", "Dropout", "Identity", "Constant")
"""Operators that a model often has and that passes take away before anything is placed."""


class OverrideResolver:
    """An OverrideSet on one graph; a pattern that names nothing is an error with the nearest names.

    `empty` is set where nothing is wanted, the usual case, in which nobody needs to be asked. `tails` are nodes that
    the data says have to stay float.
    """

    def __init__(self, graph: Graph, overrides: OverrideSet, unlike: Iterable[UnlikeJoin] = ()) -> None:
        self.graph = graph
        self.overrides = overrides
        self.tails = {node: join for join in unlike for node in join.tail}
        self._flags: dict[str, Picks] = {}
        self._parts: dict[tuple[str, str], Picks] = {}
        self._tensors: dict[str, Picks] = {}
        self._used: set[tuple[int, str]] = set()
        self.empty = not overrides.overrides and not overrides.everywhere
        self._graph_inputs = set(graph.input_names)
        nodes = _node_names(graph)
        tensors: dict[str, str] | None = None
        for order, override in enumerate(overrides.overrides):
            level = LEVELS.index(override.level)
            if override.level == "tensor":
                tensors = tensors or _tensor_names(graph)
                rank = (level, rank_among(override.pattern, tensors))
                for name in _matching(override, tensors, "tensor", {}):
                    self._take_tensor(graph.origins.current_tensor(name), override, rank, order)
            else:
                rank = (level, rank_among(override.pattern, nodes))
                for name in _matching(override, nodes, "node", graph.origins.removed):
                    self._take_node(graph.origins.current_node(name), override, rank, order)

    # ---- reading the overrides -----------------------------------------------------------------------------------

    def _take_node(self, node: str, override: Override, rank: tuple[int, int], order: int) -> None:
        for flag, value in override.flags.items():
            pick = Pick(value, override.source(flag), rank, order)
            _keep_stronger(self._flags.setdefault(node, {}), flag, pick)
            if flag == "observe_only":
                for part in PARTS:
                    _keep_stronger(self._parts.setdefault((node, part), {}), flag, pick)
        for part, wanted in override.parts.items():
            for key, value in wanted.given().items():
                pick = Pick(value, override.source(part, key), rank, order)
                _keep_stronger(self._parts.setdefault((node, part), {}), key, pick)

    def _take_tensor(self, tensor: str, override: Override, rank: tuple[int, int], order: int) -> None:
        for key, value in override.parts["tensor"].given().items():
            pick = Pick(value, override.source("tensor", key), rank, order)
            _keep_stronger(self._tensors.setdefault(tensor, {}), key, pick)

    # ---- answers -------------------------------------------------------------------------------------------------

    def flag(self, node: str, name: str) -> Pick | None:
        """A flag of a node that is set to true; `skip` and `force` of equal weight contradict each other."""
        pick = self._flags.get(node, {}).get(name)
        if pick is None or not pick.value:
            return None
        other = self._flags[node].get({"skip": "force", "force": "skip"}.get(name, ""))
        if other is not None and other.value and other.rank >= pick.rank:
            if other.rank == pick.rank:
                raise ConfigError(
                    f"node '{node}' is to be left float ({self._flags[node]['skip'].source}) and to be quantized all "
                    f"the same ({self._flags[node]['force'].source}): take one of them out"
                )
            return None
        return pick

    def left_out(self, tensor: str, node: str | None, part: str, *, is_output: bool = False) -> str | None:
        """Where it was said that a tensor shall have no quantizer for its use as a part of a node.

        What is said about the tensor counts more than what is said about the node, and that more than what is said
        about all inputs, outputs, activations, weights or biases.
        """
        if self.empty:
            return None
        picks = [self._tensors.get(tensor, {}).get("skip")]
        if node is not None:
            picks.append(self._parts.get((node, part), {}).get("skip"))
        for pick, about in zip(picks, ("tensor", part), strict=False):
            if pick is not None:
                self._used.add((pick.order, about))
        for pick in picks:
            if pick is not None:
                return pick.source if pick.value else None
        roles = [("output", is_output), ("input", tensor in self._graph_inputs)]
        roles.append(("activation" if part == "output" else part, True))
        for role, applies in roles:
            override = self.overrides.everywhere.get(role)
            if applies and override is not None and override.skip is not None:
                return self.overrides.where[(role, "skip")] if override.skip else None
        return None

    def of_constant(self, tensor: str, node: str, part: str) -> Picks:
        """What is wanted of a weight or bias that a node reads."""
        if self.empty:
            return {}
        return _strongest([self._everywhere(part), *self._about([(node, part)], [tensor])])

    def of_activation(self, members: Iterable[str], says: Iterable[tuple[str, str]], *, is_output: bool) -> Picks:
        """What is wanted of the one quantizer of `members`; `says` are the (node, part) that make or read them."""
        members = list(members)
        found = [self._everywhere("activation")]
        if any(name in self._graph_inputs for name in members):
            found.append(self._everywhere("input", formats=True))
        if is_output:
            found.append(self._everywhere("output", formats=True))
        return _strongest([*found, *self._about(says, members)])

    def format_source(self, role: str, field: str) -> str | None:
        """Where a format field or observer was set for the whole model."""
        return self.overrides.where.get((role, field))

    def unused(self) -> list[str]:
        """One line for every override that has found its nodes or tensors, but no quantizer there to change."""
        lines = []
        for order, override in enumerate(self.overrides.overrides):
            parts = [part for part in override.parts if (order, part) not in self._used]
            for part in parts:
                where = " and ".join(dict.fromkeys(override.source(part, key) for key in override.parts[part].given()))
                what = f"tensor '{override.pattern}'" if part == "tensor" else f"any {part} of '{override.pattern}'"
                lines.append(f"no effect: there is no quantizer on {what} ({where})")
        return lines

    def unused_everywhere(self, roles: set[str]) -> list[str]:
        """One line for every global table whose kind of tensor (`roles` are the ones there are) has no quantizer."""
        lines = []
        for role, override in self.overrides.everywhere.items():
            asked = [key for key in override.given() if key != "skip"]
            if asked and role not in roles and not override.skip:
                where = " and ".join(dict.fromkeys(self.overrides.where[(role, key)] for key in asked))
                what = f"{role} of the model" if role in ("input", "output") else role
                lines.append(f"no effect: no {what} has a quantizer ({where})")
        return lines

    def _about(self, says: Iterable[tuple[str, str]], tensors: Iterable[str]) -> Iterable[Picks]:
        for node, part in says:
            picks = self._parts.get((node, part), {})
            self._used.update((pick.order, part) for pick in picks.values())
            yield picks
        for tensor in tensors:
            picks = self._tensors.get(tensor, {})
            self._used.update((pick.order, "tensor") for pick in picks.values())
            yield picks

    def _everywhere(self, role: str, *, formats: bool = False) -> Picks:
        override = self.overrides.everywhere.get(role)
        if override is None:
            return {}
        keys: tuple[str, ...] = NOT_IN_BACKENDS
        if formats:
            keys = (*keys, *FORMAT_FIELDS, *IN_BACKENDS)
        elif role == "bias":  # its format is the backend's already
            keys = (*keys, *IN_BACKENDS)
        return {
            key: Pick(value, self.overrides.where[(role, key)], (_EVERYWHERE, int(formats)))
            for key, value in override.given().items()
            if key in keys
        }


def formats(picks: Mapping[str, Pick]) -> OverrideFields:
    """The wanted fields of the number format."""
    return {key: pick.value for key, pick in picks.items() if key in FORMAT_FIELDS}


def with_overrides(tensor: str, spec: QuantSpec, picks: Mapping[str, Pick]) -> QuantSpec:
    """The format of a tensor with what the user wants changed in it."""
    wanted = formats(picks)
    if not wanted:
        return spec
    try:
        return changed(spec, wanted)
    except SpecError as error:
        said = ", ".join(dict.fromkeys(picks[key].source for key in wanted))
        raise ConfigError(f"tensor '{tensor}' ({spec}) cannot be changed as {said} wants: {error}") from None


def _strongest(sources: Iterable[Picks]) -> Picks:
    """Field by field the pick with most weight; between nodes of equal weight the one with more bits."""
    result: Picks = {}
    for picks in sources:
        for key, pick in picks.items():
            if key == "skip":  # answered by left_out
                continue
            held = result.get(key)
            if held is None or (pick.rank, _width(key, pick), pick.order) >= (
                held.rank,
                _width(key, held),
                held.order,
            ):
                result[key] = pick
    dtype, bits = result.get("dtype"), result.get("bits")
    if dtype is not None and bits is not None and dtype.rank > bits.rank:
        del result["bits"]  # a type that was named more exactly has its own bits
    return result


def _keep_stronger(picks: Picks, key: str, pick: Pick) -> None:
    held = picks.get(key)
    if held is None or (pick.rank, pick.order) >= (held.rank, held.order):
        picks[key] = pick


def _width(key: str, pick: Pick) -> int:
    if key == "bits":
        return int(pick.value)
    form = number_format(str(pick.value)) if key == "dtype" else None
    return form.bits if form is not None and form.evenly_spaced else 0


def _matching(override: Override, candidates: Mapping[str, str], what: str, removed: Mapping[str, str]) -> list[str]:
    try:
        return names_matching(override.pattern, candidates, what)
    except ConfigError as error:
        gone = override.level == "op" and override.pattern.removeprefix("op:") in _FOLDED
        hint = ". Passes have folded it into other operators or removed it." if gone else ""
        if override.pattern in removed:
            hint = f" It was removed: {removed[override.pattern]}."
        raise ConfigError(f"{error}{hint} ({override.place})" if override.place else f"{error}{hint}") from None


def _node_names(graph: Graph) -> dict[str, str]:
    """Node name -> operator; names of the user's file find what became of them."""
    nodes: list[Node] = graph.nodes()
    found = {node.name: node.op for node in nodes}
    for old in graph.origins.nodes:
        current = graph.origins.current_node(old)
        if current in found:
            found.setdefault(old, found[current])
    return found


def _tensor_names(graph: Graph) -> dict[str, str]:
    found = dict.fromkeys(graph.tensor_names(), "")
    for old in graph.origins.tensors:
        if graph.origins.current_tensor(old) in found:
            found.setdefault(old, "")
    return found
