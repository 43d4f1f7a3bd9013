"""Each rule on positions: what it allows, what it moves, and that applying all of them comes to an end."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.targets.amd.dpu_rules import Site, breaches
from onnxq.targets.amd.dpu_settle import settle

CONV = Site("conv", "Conv", ("i",), "w", "b", "o")
ADD = Site("add", "Add", ("i", "j"), output="o")


def rules_broken(site: Site, **positions: int) -> list[tuple[str, str, int]]:
    return [(found.rule, found.slot, found.position) for found in breaches([site], positions)]


@pytest.mark.parametrize(
    ("site", "positions", "wanted"),
    [
        (CONV, {"i": 4, "w": 7, "b": 8, "o": 4}, []),
        (CONV, {"i": 0, "w": 2, "b": 2, "o": 5}, [("shift_cut", "w", 5)]),
        (CONV, {"i": 10, "w": 12, "b": 12, "o": 5}, [("shift_cut", "w", 11)]),
        (CONV, {"i": 10, "w": 10, "b": 4, "o": 4}, [("shift_bias", "b", 5)]),
        # the lowest shift_bias is shift_cut - 16: here 1 - 16 = -15
        (CONV, {"i": 2, "w": 2, "b": 19, "o": 3}, []),
        (CONV, {"i": 2, "w": 2, "b": 20, "o": 3}, [("shift_bias", "b", 19)]),
        (replace(CONV, leaky=True), {"i": 2, "w": 2, "b": 5, "o": 3}, [("shift_bias", "b", 4)]),
        (Site("g", "Gemm", ("i",), "w", None, "o"), {"i": 0, "w": 0, "o": 1}, [("shift_cut", "w", 1)]),
        (ADD, {"i": 3, "j": 10, "o": 10}, []),
        (ADD, {"i": 3, "j": 11, "o": 3}, [("shift_read", "j", 10)]),
        (Site("s", "Sub", ("i", "j"), output="o"), {"i": 12, "j": 4, "o": 40}, [("shift_read", "i", 11)]),
        (ADD, {"i": 3, "j": 3, "o": 11}, [("shift_write", "o", 10)]),
        (ADD, {"i": 20, "j": 20, "o": -6}, [("shift_write", "o", -5)]),
        (Site("m", "Mul", ("i", "j"), output="o"), {"i": 2, "j": 3, "o": 6}, [("shift_write", "o", 5)]),
        (Site("m", "Mul", ("i", "j"), output="o"), {"i": 20, "j": 20, "o": 7}, [("shift_write", "o", 8)]),
        (Site("m", "Mul", ("i", "j"), output="o", swish=True), {"i": 9, "j": 8, "o": 1}, [("shift_swish", "o", 2)]),
        (Site("h", "HardSigmoid", ("i",), output="o", hard_sigmoid=True), {"i": 4, "o": 7}, []),
        (Site("h", "HardSigmoid", ("i",), output="o", hard_sigmoid=True), {"i": -1, "o": 6}, [
            ("hard_sigmoid", "i", 0), ("hard_sigmoid", "o", 7)]),
        (Site("h", "HardSigmoid", ("i",), output="o", hard_sigmoid=True), {"i": 16, "o": 30}, [
            ("hard_sigmoid", "i", 15), ("hard_sigmoid", "o", 29)]),
        (Site("h", "HardSigmoid", ("i",), output="o"), {"i": -1, "o": 6}, []),
        (Site("c", "Concat", ("i", "j"), output="o"), {"i": 4, "j": 6, "o": 5}, [
            ("align_concat", "o", 4), ("align_concat", "j", 4)]),
        (Site("p", "MaxPool", ("i",), output="o"), {"i": 4, "o": 5}, [("align_pool", "o", 4)]),
        (Site("p", "Pad", ("i",), output="o"), {"i": 6, "o": 5}, [("align_pad", "i", 5)]),
        (Site("p", "Slice", ("i",), output="o"), {"i": 6, "o": 5}, [("align_slice", "i", 5)]),
    ],
)  # fmt: skip
def test_a_rule_moves_one_position_to_its_nearest_bound(
    site: Site, positions: dict[str, int], wanted: list[tuple[str, str, int]]
) -> None:
    assert rules_broken(site, **positions) == wanted


def test_a_rule_is_silent_where_a_position_is_unknown() -> None:
    for missing in "iwo":
        known = {"i": 0, "w": 0, "b": -40, "o": 9}
        del known[missing]
        assert rules_broken(CONV, **known) == []


def test_a_breach_says_rule_node_value_and_allowed_interval() -> None:
    found = next(breaches([CONV], {"i": 0, "w": 2, "b": 2, "o": 5}))
    assert str(found) == "shift_cut of Conv 'conv': w + i - o is -3, allowed is 0 .. 16"


def test_positions_that_keep_to_the_rules_are_left_alone() -> None:
    start = {"i": 4, "w": 7, "b": 8, "o": 4}
    settled = settle([CONV], start)
    assert settled.positions == start
    assert settled.changes == ()
    assert settled.rounds == 1


def test_a_long_chain_settles_after_more_rounds_than_quark_runs() -> None:
    # Pools listed against the direction of the data: each round carries the low position one step further.
    sites = [Site(f"p{k}", "MaxPool", (f"t{k}",), output=f"t{k + 1}") for k in reversed(range(12))]
    settled = settle(sites, {f"t{k}": 0 if k == 0 else 9 for k in range(13)})
    assert set(settled.positions.values()) == {0}
    assert settled.rounds > 5
    assert not settled.contradiction


def test_rules_that_contradict_each_other_end_with_lower_positions() -> None:
    # The Concat pulls the sum to -30, from where shift_write would lift it again, for ever.
    sites = [ADD, Site("cat", "Concat", ("o", "k"), output="c")]
    start = {"i": 5, "j": 5, "o": 5, "k": -30, "c": 5}
    settled = settle(sites, start)
    assert settled.contradiction
    assert list(breaches(sites, settled.positions)) == []
    assert settled.positions == {"i": -5, "j": -5, "o": -30, "k": -30, "c": -30}


def test_a_gate_that_reaches_one_is_raised_with_what_is_aligned_with_it() -> None:
    sites = [
        Site("gate", "HardSigmoid", ("i",), output="o", hard_sigmoid=True),
        Site("pool", "GlobalAveragePool", ("o",), output="p"),
    ]
    settled = settle(sites, {"i": 4, "o": 6, "p": 6})
    assert settled.positions == {"i": 4, "o": 7, "p": 7}
    assert list(breaches(sites, settled.positions)) == []


def test_what_no_position_suits_is_an_error_with_node_and_remedy() -> None:
    # The Concat wants the input of the HardSigmoid at -4, which must not be below 0.
    sites = [
        Site("cat", "Concat", ("i", "k"), output="c"),
        Site("gate", "HardSigmoid", ("i",), output="o", hard_sigmoid=True),
    ]
    with pytest.raises(
        UnsupportedError, match=r"no position of 'i' suits.*i is -4, allowed is 0 .. 15.*Keep 'gate' float"
    ):
        settle(sites, {"i": 3, "k": -4, "c": 3, "o": 7})
    shared = [Site("one", "Conv", ("i",), "w", None, "o"), Site("two", "Conv", ("j",), "w", None, "p")]
    with pytest.raises(UnsupportedError, match=r"no position of 'w' suits.*Keep '(one|two)' float"):
        settle(shared, {"i": 0, "j": 0, "w": 0, "o": 30, "p": 0})


def test_random_networks_always_settle_or_say_why() -> None:
    generator = np.random.default_rng(3)
    operators = ("Add", "Sub", "Mul", "Concat", "MaxPool", "HardSigmoid", "Conv")
    settled_count = 0
    for _ in range(200):
        names, sites = ["t0", "t1"], []
        for number in range(7):
            op = operators[generator.integers(len(operators))]
            one, other = (names[k] for k in generator.integers(0, len(names), 2))
            names.append(f"t{len(names)}")
            inputs = (one,) if op in ("MaxPool", "HardSigmoid", "Conv") else (one, other)
            weight = f"w{number}" if op == "Conv" else None
            gate, swish = op == "HardSigmoid", op == "Mul" and bool(generator.integers(2))
            sites.append(Site(f"n{number}", op, inputs, weight, None, names[-1], hard_sigmoid=gate, swish=swish))
        slots = itertools.chain(names, (f"w{k}" for k in range(7)))
        start = {slot: int(generator.integers(-2, 13)) for slot in slots}
        try:
            settled = settle(sites, start)
        except UnsupportedError:
            continue
        settled_count += 1
        assert list(breaches(sites, settled.positions)) == []
    assert settled_count > 120
