"""Apply the rules on positions until all of them hold, and prove that this ends.

The loop is Quark's: all rules in order, each change seen by the next, again and again. Quark gives up after 5 rounds;
here it goes on, because a file that breaks a rule does not compile. Where Quark's change would clip a tensor, the one
that costs least is made (`dpu_adjustments`, `dpu_costs`), if that comes to an end. Rules can contradict each other for
ever (a Concat lowers what a shift_write raises). That shows in a state that was there before, and from then on
positions of activations are only lowered:

- each step lowers a whole number, and none may go below LOWEST: the steps are finite in number;
- then, once, what is aligned with a HardSigmoid and one position too low for it is raised by one (a gate that reaches
  exactly 1 is calibrated to position 6 and has to be at 7), and all is lowered again;
- weights and biases come last, one after the other, since no rule for activations reads them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from onnxq.errors import UnsupportedError
from onnxq.targets.amd.dpu_adjustments import OF_CONSTANTS, Cost, adjusted, lowering
from onnxq.targets.amd.dpu_rules import ALIGNED, Breach, Positions, Rule, Site, active_rules, breaches, without_leaks

QUARK_ROUNDS = 5
COSTED_ROUNDS, MOST_ROUNDS = 50, 1000
LOWEST = -100
"""Scales of 2^100 and more are not numbers of a network: a position that arrives here chases a contradiction."""


@dataclass(frozen=True)
class Settled:
    """Positions that break no rule, what was changed on the way, and how many rounds it took."""

    positions: dict[str, int]
    changes: tuple[Breach, ...]
    rounds: int
    contradiction: bool = False


def settle(sites: list[Site], start: Positions, without: Collection[str] = (), cost: Cost | None = None) -> Settled:
    """Positions that keep to all rules, as near to `start` as the rules lead; an error names what cannot be kept.

    `without` names rules that are switched off. Where a rule would clip a tensor, `cost` decides between that and the
    other changes that keep it; without it every rule moves what Quark moves.
    """
    rules = active_rules(without)
    sites = without_leaks(sites, without)
    if cost is not None:
        found = _repeated(rules, sites, start, cost, COSTED_ROUNDS)
        if not found.contradiction:
            return found
    found = _repeated(rules, sites, start, None, MOST_ROUNDS)
    if not found.contradiction:
        return found
    positions, changes = found.positions, list(found.changes)
    changes += _lower(rules, sites, positions)
    changes += _lift_gates(sites, positions, without)
    changes += _lower(rules, sites, positions)
    changes += _constants(sites, positions, without, cost)
    changes += _constants(sites, positions, without, None)
    left = next(breaches(sites, positions, without), None)
    if left is not None:
        raise _impossible(left)
    return Settled(positions, tuple(changes), found.rounds, contradiction=True)


def _repeated(rules: tuple[Rule, ...], sites: list[Site], start: Positions, cost: Cost | None, most: int) -> Settled:
    """All rules in order until all hold, or until a state comes back or the rounds are used up: a contradiction."""
    positions = dict(start)
    changes: list[Breach] = []
    seen = {tuple(positions.values())}
    for rounds in range(1, most):
        changed = _round(rules, sites, positions, cost)
        if not changed:
            return Settled(positions, tuple(changes), rounds)
        changes += changed
        state = tuple(positions.values())
        if state in seen:
            break
        seen.add(state)
    return Settled(positions, tuple(changes), rounds, contradiction=True)


def _round(rules: tuple[Rule, ...], sites: list[Site], positions: dict[str, int], cost: Cost | None) -> list[Breach]:
    """One pass of all rules; later rules and nodes see what earlier ones changed."""
    changed = []
    for rule in rules:
        for site in sites:
            for breach in rule(site, positions):
                for change in adjusted(breach, positions, cost):
                    positions[change.slot] = change.position
                    changed.append(change)
    return changed


def _lower(rules: tuple[Rule, ...], sites: list[Site], positions: dict[str, int]) -> list[Breach]:
    """Meet all rules for activations by lowering; what only raising could meet is left for the caller to find."""
    changed = []
    pending = True
    while pending:
        pending = False
        for rule in rules:
            for site in sites:
                for breach in rule(site, positions):
                    for step in lowering(breach, positions):
                        if step.position < LOWEST:
                            raise _impossible(breach)
                        positions[step.slot] = step.position
                        changed.append(step)
                        pending = True
    return changed


def _lift_gates(sites: list[Site], positions: dict[str, int], without: Collection[str]) -> list[Breach]:
    """Raise a HardSigmoid's tensor that is one position too low, with everything that is aligned with it."""
    changed = []
    for site in sites:
        for breach in breaches([site], positions, without):
            if breach.rule == "hard_sigmoid" and breach.position == positions[breach.slot] + 1:
                for slot in _aligned_with(breach.slot, sites, without):
                    if positions.get(slot) == breach.value:
                        positions[slot] = breach.position
                        changed.append(replace(breach, slot=slot))
    return changed


def _aligned_with(slot: str, sites: list[Site], without: Collection[str]) -> list[str]:
    """The slots that share the position of `slot` by alignment, itself first."""
    aligned = {op for rule, ops in ALIGNED.items() if rule not in without for op in ops}
    found = [slot]
    for name in found:
        for site in sites:
            around = [other for other in (*site.inputs, site.output) if other is not None]
            if site.op in aligned and name in around:
                found.extend(other for other in around if other not in found)
    return found


def _constants(
    sites: list[Site], positions: dict[str, int], without: Collection[str], cost: Cost | None
) -> list[Breach]:
    """Weights, then biases; one that several nodes share may have no position that suits them all."""
    constants = frozenset(slot for site in sites for slot in (site.weight, site.bias) if slot is not None)
    changed = []
    for _ in range(2):
        for breach in breaches(sites, positions, without):
            if breach.rule in OF_CONSTANTS:
                for change in adjusted(breach, positions, cost, constants):
                    positions[change.slot] = change.position
                    changed.append(change)
    return changed


def _impossible(breach: Breach) -> UnsupportedError:
    return UnsupportedError(
        f"no position of '{breach.slot}' suits all operators around it. {breach}. Keep '{breach.site.node}' float "
        f"(skip it), or give the tensors around it ranges that differ less"
    )
