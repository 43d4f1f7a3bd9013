"""What a search may choose: weights and activations whose bits are free, and the bits that the target takes.

A weight is free together with those that share its scale, and so is an activation. Only activations that are multiplied
count: the bits of others change no cost. What the user has fixed in the configuration for a single tensor stays fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from onnxq.config import Config
from onnxq.config.changes import merged
from onnxq.costs import Product
from onnxq.errors import ConfigError, UnsupportedError
from onnxq.mixed_precision.study import Study
from onnxq.place.legal import violations
from onnxq.types import Placement, QuantPlan

Kind = Literal["weight", "activation"]
For = Literal["weights", "activations", "both"]
KINDS: Mapping[str, tuple[Kind, ...]] = {
    "weights": ("weight",),
    "activations": ("activation",),
    "both": ("weight", "activation"),
}

Bits = Mapping[str, int]
"""Name of a variable -> its bits."""


@dataclass(frozen=True)
class Variable:
    """A quantizer whose bits are free.

    name      its tensor, or the one that leads those with the same scale
    members   all of them
    layers    the nodes that read it
    paths     where the configuration says its bits
    own       the bits that it has where nothing is chosen
    bits      what can be chosen, the most first
    """

    name: str
    kind: Kind
    members: tuple[str, ...]
    layers: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]
    own: int
    bits: tuple[int, ...] = ()


@dataclass(frozen=True)
class Choices:
    """Variables with their legal bits, and for each number of bits the plan in which all that can have them do."""

    variables: tuple[Variable, ...]
    plans: Mapping[int, QuantPlan]
    notes: tuple[str, ...]

    def most(self) -> dict[str, int]:
        return {variable.name: variable.bits[0] for variable in self.variables}

    def uniform(self, bits: int) -> dict[str, int]:
        """The same bits everywhere, or the nearest more where they are not legal."""
        return {v.name: min((b for b in v.bits if b >= bits), default=v.bits[0]) for v in self.variables}


def find_choices(study: Study, bits: Sequence[int], what: For, products: Sequence[Product]) -> Choices:
    """The free quantizers of a model; bits that the target can give to none of them are refused with its rule.

    Nothing is calibrated for it, so that what is refused has cost no time and left no files.
    """
    if what not in KINDS:
        raise ConfigError(f"a search is for weights, activations or both, got '{what}'")
    wanted = sorted(set(bits), reverse=True)
    if len(wanted) < 2 or not all(1 <= number <= 16 for number in wanted):
        raise ConfigError(f"a search chooses among two or more numbers of bits from 1 to 16, got {_listed(bits)}")
    plan = study.plan()
    named = " and ".join(f"{word}s" for word in KINDS[what])
    free = [variable for kind in KINDS[what] for variable in _variables(study, plan, kind, products)]
    if not free:
        raise ConfigError(
            f"{study.prepared.backend.name} quantizes no {named} of this model that bits could be chosen for"
        )
    legal: dict[str, list[int]] = {variable.name: [] for variable in free}
    notes: list[str] = []
    plans: dict[int, QuantPlan] = {}
    for number in wanted:
        refused = _refused(study, free, number)
        if len(refused) == len(free):
            raise UnsupportedError(
                f"{study.prepared.backend.name} cannot take {number} bits for any of these {named}: "
                f"{next(iter(refused.values()))}"
            )
        taken = [variable for variable in free if variable.name not in refused]
        for variable in taken:
            legal[variable.name].append(number)
        notes += [f"'{name}' cannot have {number} bits: {why}" for name, why in refused.items()]
        config = configured(study.config, {v.name: number for v in taken}, taken)
        plans[number] = study.plan(config)
    variables = [replace(variable, bits=tuple(legal[variable.name])) for variable in free]
    return Choices(tuple(variable for variable in variables if variable.bits), plans, tuple(notes))


def configured(config: Config, bits: Bits, variables: Iterable[Variable], said_by: str = "--bits") -> Config:
    """The configuration with the chosen bits; what a quantizer has anyway is not said."""
    changes = {
        (*path, "bits"): bits[variable.name]
        for variable in variables
        if variable.name in bits and bits[variable.name] != variable.own
        for path in variable.paths
    }
    return merged(config, changes, said_by)


def _variables(study: Study, plan: QuantPlan, kind: Kind, products: Sequence[Product]) -> list[Variable]:
    graph, scheme = study.graph, study.prepared.backend.scheme
    multiplied = {name for product in products for name in product.operands}
    groups: dict[str, list[Placement]] = {}
    for placement in plan:
        if placement.edges != () and graph.is_constant(placement.tensor) == (kind == "weight"):
            groups.setdefault(plan.leader(placement.tensor), []).append(placement)
    found = []
    for leader, group in groups.items():
        counts = any(placement.tensor in multiplied for placement in group)
        # A constant that is added has the format of activations, and is as good as none.
        table = kind == "weight" and len(graph.shape(leader) or ()) > 1 and plan[leader].spec != scheme.activation
        if group[0].role == "bias" or not (counts or table) or not plan[leader].spec.evenly_spaced:
            continue
        members = tuple(placement.tensor for placement in group)
        layers = tuple(dict.fromkeys(use.node.name for name in members for use in graph.consumers(name)))
        if kind == "weight":
            paths: tuple[tuple[str, ...], ...] = tuple(("node", node, "weight") for node in layers)
        else:
            paths = (("tensor", leader),)
        found.append(Variable(leader, kind, members, layers, paths, plan[leader].spec.bits))
    return found


def _refused(study: Study, free: Sequence[Variable], number: int) -> dict[str, str]:
    """Variables that cannot have these bits -> the rule of the target, or who decides their bits."""
    config = configured(study.config, {variable.name: number for variable in free}, free)
    plan = study.plan(config, checked=False)
    refused: dict[str, str] = {}
    for variable in free:
        for name in variable.members:
            placement = plan.placements.get(name)
            if placement is None:
                refused[variable.name] = "it is not quantized then"
            elif placement.spec.bits != number:
                said = ", ".join(dict.fromkeys(where for _, where in placement.set_by)) or "the target"
                refused[variable.name] = f"{said} says {placement.spec.bits} bits"
            else:
                alone = replace(plan, placements={name: replace(placement, tie=None)})
                broken = next(violations(alone, study.prepared.backend), None)
                if broken is not None:
                    refused[variable.name] = broken
    return refused


def _listed(bits: Iterable[int]) -> str:
    return ", ".join(str(number) for number in bits) or "none"
