"""Which findings are causes: the model is evaluated with each kind taken away, and some of the noise has to be gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from onnxq.diagnose.causes import Cause, Code, Costly, FewBits
from onnxq.diagnose.evidence import EVIDENCE, Case, Evidence
from onnxq.diagnose.experiment import WIDE, in_turn, with_more_bits
from onnxq.diagnose.noise import ScoreOf, worst_db
from onnxq.mixed_precision.parts import Part, alone
from onnxq.mixed_precision.study import noise
from onnxq.ptq.method import State

EXPLAINED = 0.15
"""Part of the noise that has to vanish with a cause for it to count."""

ALIKE = 0.9
"""Causes that take away at least this part of what the best one does: the particular comes before the general."""

ORDER: tuple[Code, ...] = Code.__args__  # type: ignore[attr-defined]

Say = Callable[[int, int], None]


def proven_causes(case: Case, score: ScoreOf, say: Say) -> list[Cause]:
    """Causes without which there is less noise, the one with the largest part first."""
    found: dict[Code, list[Evidence]] = {}
    for look in EVIDENCE:
        for evidence in look(case):
            found.setdefault(evidence.finding.code, []).append(evidence)
    few = _few_bits(case)
    if few:
        found["few_bits"] = few
    shares = {row.name: row.share for row in case.costly}
    proven = _proven(found, case.state, shares, score, say)
    if not proven:
        # Where nothing of the signal is left, taking one cause away shows only if the other quantizers are float.
        proven = _proven(found, _only(case.state, case.costly), shares, score, say)
    return _in_order(proven)


def _few_bits(case: Case) -> list[Evidence]:
    """Quantizers that may just have too few bits."""
    specs = {row.name: case.state.plan[row.name].spec for row in case.costly}
    return [
        Evidence(FewBits(name, spec.bits), with_more_bits(name))
        for name, spec in specs.items()
        if spec.evenly_spaced and spec.bits < WIDE
    ]


def _proven(
    found: Mapping[Code, Sequence[Evidence]], state: State, shares: Mapping[str, float], score: ScoreOf, say: Say
) -> list[tuple[float, Cause]]:
    """Causes without which a part of the noise of a state is gone, each with that part."""
    before = score(state)
    whole = noise(before)
    proven: list[tuple[float, Cause]] = []
    for number, (code, listed) in enumerate(found.items()):
        say(number, len(found))
        after = score(in_turn(item.change for item in listed)(state))
        explained = 0.0 if whole <= 0 else 1.0 - noise(after) / whole
        if explained >= EXPLAINED:
            share = sum(shares.get(name, 0.0) for name in {item.finding.quantizer for item in listed})
            findings = tuple(item.finding for item in listed)
            proven.append((explained, Cause(code, findings, min(share, 1.0), worst_db(after) - worst_db(before))))
    return proven


def _only(state: State, costly: Sequence[Costly]) -> State:
    """The quantizers of some rows, while all others are float."""
    share: dict[str, None] = {name: None for row in costly for name in row.tensors}
    return replace(state, plan=alone(state.graph, state.plan.active, Part("", "", share, ())))


def _in_order(proven: Sequence[tuple[float, Cause]]) -> list[Cause]:
    """By what each takes away; of those that take about as much as the best, the particular before the general."""
    left = sorted(proven, key=lambda item: -item[0])
    ordered: list[Cause] = []
    while left:
        alike = [item for item in left if item[0] >= ALIKE * left[0][0]]
        chosen = min(alike, key=lambda item: ORDER.index(item[1].code))
        ordered.append(chosen[1])
        left = [item for item in left if item is not chosen]
    return ordered
