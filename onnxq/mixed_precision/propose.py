"""Configurations worth trying: the frontier of (cost, predicted loss) over all choices of bits.

The predicted loss of a configuration is the sum of what each quantizer costs alone at its bits. Costs are exact:
bytes and bits of weights add up over weights; bit operations multiply the bits of two operands, so quantizers that
are multiplied with each other are one unit. Inside a unit everything is tried for its activations, and for each of
these cases the weights are independent again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product as combinations

from onnxq.costs import FLOAT_BITS, Costs, Product, operand_bits, weight_bytes
from onnxq.graph import Graph
from onnxq.mixed_precision.budget import Measure, cost_in
from onnxq.mixed_precision.choices import Bits, Choices, Variable
from onnxq.mixed_precision.frontier import Frontier, either, frontier, together
from onnxq.types import QuantPlan

Losses = Mapping[str, Mapping[int, float]]
"""Name of a variable -> bits -> loss alone."""

MOST_CASES = 256
"""Combinations of the bits of a unit's activations; above that they all have the same bits."""


def predicted_loss(losses: Losses, bits: Bits) -> float:
    return math.fsum(losses[name][number] for name, number in bits.items())


class CostModel:
    """The exact cost of any choice of bits, without placing it: bits of variables in what the whole plan counts."""

    def __init__(
        self, graph: Graph, choices: Choices, products: Sequence[Product], measure: Measure, most: Costs
    ) -> None:
        """`most` are the costs of the plan with the most bits everywhere."""
        self.measure = measure
        self.units = _multiplied_together(choices, products) if measure == "bit_operations" else []
        self.of_weights = {
            variable.name: {number: _weight_cost(graph, choices, variable, number, measure) for number in variable.bits}
            for variable in choices.variables
            if measure != "bit_operations"
        }
        self.fixed = 0
        self.fixed = cost_in(measure, most) - self.cost(choices.most())

    def cost(self, bits: Bits) -> int:
        """What the model costs with these bits of all variables."""
        if self.measure != "bit_operations":
            return self.fixed + sum(table[bits[name]] for name, table in self.of_weights.items())
        return self.fixed + sum(
            item.macs * math.prod(bits[operand] if isinstance(operand, str) else operand for operand in operands)
            for _, used in self.units
            for item, operands in used
        )


def proposals(choices: Choices, losses: Losses, model: CostModel) -> Frontier:
    """The frontier of all configurations."""
    nothing = frontier([], [(model.fixed, 0.0, [])])
    if model.measure == "bit_operations":
        return together([nothing, *(_unit(losses, variables, used) for variables, used in model.units)])
    return together(
        [
            nothing,
            *(
                frontier(
                    [v.name],
                    [(model.of_weights[v.name][number], losses[v.name][number], [number]) for number in v.bits],
                )
                for v in choices.variables
            ),
        ]
    )


def _weight_cost(graph: Graph, choices: Choices, variable: Variable, number: int, measure: Measure) -> int:
    plan = choices.plans[number]
    if measure == "bytes":
        return sum(weight_bytes(graph, name, plan[name].spec) for name in variable.members)
    return sum(math.prod(graph.tensor(name).shape) * number for name in variable.members)


Used = list[tuple[Product, list[str | int]]]
"""Products with their operands: names of variables, or bits that are fixed."""


def _multiplied_together(choices: Choices, products: Sequence[Product]) -> list[tuple[list[Variable], Used]]:
    """Units: variables that are multiplied with each other, directly or by way of others, and their products."""
    owner = {member: variable.name for variable in choices.variables for member in variable.members}
    unit_of = {variable.name: {variable.name} for variable in choices.variables}
    plan: QuantPlan = choices.plans[max(choices.plans)]
    used: Used = []
    for item in products:
        bits = [operand_bits(plan, item, port) for port in (0, 1)]
        operands: list[str | int] = [
            owner[name] if name in owner and own != FLOAT_BITS else own
            for name, own in zip(item.operands, bits, strict=True)
        ]
        named = [operand for operand in operands if isinstance(operand, str)]
        if named:
            used.append((item, operands))
            joined = set().union(*(unit_of[name] for name in named))
            for name in joined:
                unit_of[name] = joined
    units: dict[int, tuple[list[Variable], Used]] = {}
    for variable in choices.variables:
        units.setdefault(id(unit_of[variable.name]), ([], []))[0].append(variable)
    for item, operands in used:
        name = next(operand for operand in operands if isinstance(operand, str))
        units[id(unit_of[name])][1].append((item, operands))
    return list(units.values())


def _unit(losses: Losses, variables: Sequence[Variable], used: Used) -> Frontier:
    activations = [variable for variable in variables if variable.kind == "activation"]
    weights = [variable for variable in variables if variable.kind == "weight"]
    names = [variable.name for variable in activations]
    cases = []
    for case in _cases(activations):
        known = dict(zip(names, case, strict=True))
        fixed, of_weights = _apart(used, known, [variable.name for variable in weights])
        loss = math.fsum(losses[name][number] for name, number in known.items())
        own = frontier(names, [(fixed, loss, case)])
        inner = [
            frontier([v.name], [(of_weights[v.name] * number, losses[v.name][number], [number]) for number in v.bits])
            for v in weights
        ]
        cases.append(together([own, *inner]))
    return either(cases)


def _cases(activations: Sequence[Variable]) -> Iterator[tuple[int, ...]]:
    if math.prod(len(variable.bits) for variable in activations) <= MOST_CASES:
        yield from combinations(*(variable.bits for variable in activations))
        return
    for number in sorted({number for variable in activations for number in variable.bits}, reverse=True):
        yield tuple(min((b for b in v.bits if b >= number), default=v.bits[0]) for v in activations)


def _apart(used: Used, known: Mapping[str, int], weights: Sequence[str]) -> tuple[int, dict[str, int]]:
    """What products cost whatever the weights have, and for each weight what one bit of it costs."""
    fixed = 0
    of_weights = dict.fromkeys(weights, 0)
    for item, operands in used:
        weight = next((operand for operand in operands if operand in of_weights), None)
        others = [known[operand] if isinstance(operand, str) else operand for operand in operands if operand != weight]
        if isinstance(weight, str):
            of_weights[weight] += item.macs * math.prod(others)
        else:
            fixed += item.macs * math.prod(others)
    return fixed, of_weights
