"""What the compilers of AMD's DPU and NPU demand of the positions around an operator, as inequalities on integers.

A tensor at position p holds integers times 2^-p, and the chip goes from one position to another by shifting. Its
shifters have few bits. With i, w, b, o for the positions of input, weight, bias and output:

    concat, pool, pad, slice   inputs and output share the smallest of their positions
    shift_read    max(i) - min(i)  in 0 .. 7            Add, Sub: the largest i is lowered
    shift_write   min(i) - o       in -7 .. 25          Add: o is moved
                  sum(i) - o       in 0 .. 32           Mul: o is moved
    shift_cut     w + i - o        in 0 .. 16           Conv, Gemm: w is moved
    shift_bias    w + i - b        in min(0, shift_cut - 16) .. 15, from 0 before a LeakyRelu: b is moved
    hard_sigmoid  i in 0 .. 15;  o in 7 .. 14 + i
    shift_swish   i0 + i1 - o      in 0 .. 15           the Mul of x * HardSigmoid(x): o is moved

These are the figures of Quark 0.13, the current tool for both chips; earlier Vitis AI tools allowed shift_bias up to 16
and did not check shift_read and shift_write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool")
ALIGNED: Mapping[str, tuple[str, ...]] = {
    "align_concat": ("Concat",),
    "align_pool": POOLS,
    "align_pad": ("Pad",),
    "align_slice": ("Slice",),
}
"""Rule -> operators whose inputs and output share one position."""


@dataclass(frozen=True)
class Site:
    """One operator with the slots (names of quantizers) around it; None where there is none.

    leaky          a LeakyRelu follows
    hard_sigmoid   it is a HardSigmoid as the chip computes it (alpha 1/6, beta 1/2)
    swish          it multiplies a tensor that a HardSigmoid reads as well
    """

    node: str
    op: str
    inputs: tuple[str | None, ...] = ()
    weight: str | None = None
    bias: str | None = None
    output: str | None = None
    leaky: bool = False
    hard_sigmoid: bool = False
    swish: bool = False


@dataclass(frozen=True)
class Breach:
    """A broken rule: `value` of `formula` lies outside `low` .. `high`; `slot` at `position` would meet it."""

    rule: str
    site: Site
    formula: str
    value: int
    low: int
    high: int
    slot: str
    position: int

    def __str__(self) -> str:
        span = str(self.low) if self.low == self.high else f"{self.low} .. {self.high}"
        return f"{self.rule} of {self.site.op} '{self.site.node}': {self.formula} is {self.value}, allowed is {span}"


Positions = Mapping[str, int]
Rule = Callable[[Site, Positions], Iterator[Breach]]


def _known(slots: tuple[str | None, ...], positions: Positions) -> list[str] | None:
    """The slots, if every one of them has a position."""
    found = [slot for slot in slots if slot is not None and slot in positions]
    return found if len(found) == len(slots) else None


def _aligned(rule: str) -> Rule:
    """Inputs and output share the smallest of their positions."""

    def check(site: Site, positions: Positions) -> Iterator[Breach]:
        if site.op not in ALIGNED[rule] or site.output not in positions:
            return
        slots = [site.output, *(slot for slot in site.inputs if slot in positions)]
        lowest = min(positions[slot] for slot in slots if slot is not None)
        for slot in dict.fromkeys(slots):
            if slot is not None and positions[slot] != lowest:
                yield Breach(rule, site, f"the position of '{slot}'", positions[slot], lowest, lowest, slot, lowest)

    return check


def _shift_read(site: Site, positions: Positions) -> Iterator[Breach]:
    inputs = _known(site.inputs, positions)
    if site.op not in ("Add", "Sub") or not inputs:
        return
    smallest = min(positions[slot] for slot in inputs)
    largest = max(inputs, key=lambda slot: positions[slot])
    value = positions[largest] - smallest
    if value > 7:
        yield Breach("shift_read", site, "max(i) - min(i)", value, 0, 7, largest, smallest + 7)


def _moves_output(rule: str, site: Site, formula: str, start: int, low: int, high: int, now: int) -> Iterator[Breach]:
    """low <= start - o <= high, met by changing o."""
    value = start - now
    assert site.output is not None
    if not low <= value <= high:
        kept = min(max(value, low), high)
        yield Breach(rule, site, formula, value, low, high, site.output, start - kept)


def _shift_write(site: Site, positions: Positions) -> Iterator[Breach]:
    inputs = _known(site.inputs, positions)
    if not inputs or site.output is None or site.output not in positions:
        return
    at, now = [positions[slot] for slot in inputs], positions[site.output]
    if site.op == "Add":
        yield from _moves_output("shift_write", site, "min(i) - o", min(at), -7, 25, now)
    elif site.op == "Mul":
        yield from _moves_output("shift_write", site, "sum(i) - o", sum(at), 0, 32, now)


def _shift_swish(site: Site, positions: Positions) -> Iterator[Breach]:
    inputs = _known(site.inputs, positions)
    if site.swish and inputs and len(inputs) == 2 and site.output is not None and site.output in positions:
        start = sum(positions[slot] for slot in inputs)
        yield from _moves_output("shift_swish", site, "i0 + i1 - o", start, 0, 15, positions[site.output])


def _shift_cut(site: Site, positions: Positions) -> Iterator[Breach]:
    slots = _known((site.inputs[0], site.weight, site.output), positions) if site.op in ("Conv", "Gemm") else None
    if slots is None:
        return
    data, weight, made = (positions[slot] for slot in slots)
    value = weight + data - made
    if not 0 <= value <= 16:
        kept = min(max(value, 0), 16)
        yield Breach("shift_cut", site, "w + i - o", value, 0, 16, slots[1], kept + made - data)


def _shift_bias(site: Site, positions: Positions) -> Iterator[Breach]:
    wanted = (site.inputs[0], site.weight, site.output, site.bias) if site.op in ("Conv", "Gemm") else ()
    slots = _known(wanted, positions) if wanted else None
    if slots is None:
        return
    data, weight, made, bias = (positions[slot] for slot in slots)
    low = 0 if site.leaky else min(0, weight + data - made - 16)
    value = weight + data - bias
    if not low <= value <= 15:
        kept = min(max(value, low), 15)
        yield Breach("shift_bias", site, "w + i - b", value, low, 15, slots[3], weight + data - kept)


def _hard_sigmoid(site: Site, positions: Positions) -> Iterator[Breach]:
    slots = _known((site.inputs[0], site.output), positions) if site.hard_sigmoid else None
    if slots is None:
        return
    data, made = (positions[slot] for slot in slots)
    kept = min(max(data, 0), 15)
    if kept != data:
        yield Breach("hard_sigmoid", site, "i", data, 0, 15, slots[0], kept)
    wanted = min(max(made, 7), 14 + kept)
    if wanted != made:
        yield Breach("hard_sigmoid", site, "o", made, 7, 14 + kept, slots[1], wanted)


RULES: Mapping[str, Rule] = {
    **{name: _aligned(name) for name in ALIGNED},
    "shift_read": _shift_read,
    "shift_write": _shift_write,
    "shift_cut": _shift_cut,
    "shift_bias": _shift_bias,
    "hard_sigmoid": _hard_sigmoid,
    "shift_swish": _shift_swish,
}
"""In the order in which Quark runs them: alignment first, then what depends on it."""

LEAKY_BIAS = "shift_bias_leaky"
"""The part of shift_bias that holds before a LeakyRelu only; without it such a bias has the bounds of the others."""

SWITCHES = (*RULES, LEAKY_BIAS)
"""What a configuration can leave out: skip_refinements = ["dpu_positions.shift_cut"]."""


def active_rules(without: Collection[str] = ()) -> tuple[Rule, ...]:
    """The rules in order, less those that are switched off."""
    return tuple(rule for name, rule in RULES.items() if name not in without)


def without_leaks(sites: list[Site], without: Collection[str]) -> list[Site]:
    """The sites, with no LeakyRelu behind any of them where its own bound is switched off."""
    return [replace(site, leaky=False) for site in sites] if LEAKY_BIAS in without else sites


def breaches(sites: list[Site], positions: Positions, without: Collection[str] = ()) -> Iterator[Breach]:
    """Every broken rule, rule by rule; `without` names rules that are switched off."""
    seen = without_leaks(sites, without)
    for rule in active_rules(without):
        for site in seen:
            yield from rule(site, positions)
