"""Single rules of `dpu_positions` switched off: how that is written in a configuration and in a backend.

    skip_refinements = ["dpu_positions.shift_cut", "dpu_positions.align_pool"]      in a configuration
    refinements      = (..., "dpu_positions:without=shift_cut+align_pool", ...)     in the backend made of it

The refinement and the lint both read the backend, so that a rule which was switched off is not complained about.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnxq.errors import ConfigError, did_you_mean
from onnxq.targets.amd.dpu_rules import SWITCHES

REFINEMENT = "dpu_positions"
_WITHOUT = f"{REFINEMENT}:without="


def switched_off(refinements: Iterable[str]) -> frozenset[str]:
    """The rules that a backend's list of refinements leaves out; empty where it leaves out none."""
    found: set[str] = set()
    for name in refinements:
        if name.startswith(_WITHOUT):
            found.update(name.removeprefix(_WITHOUT).split("+"))
    return frozenset(_checked(found))


def _checked(rules: Iterable[str]) -> list[str]:
    names = list(rules)
    for rule in names:
        if rule not in SWITCHES:
            raise ConfigError(
                f"{REFINEMENT} has no rule '{rule}'.{did_you_mean(rule, SWITCHES)} Known: {', '.join(SWITCHES)}"
            )
    return names
