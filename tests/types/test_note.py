"""Lines of a kind are shown as one, with their count."""

from __future__ import annotations

import copy
import pickle

from onnxq.types.note import KINDS, MEANING, Note, by_kind, folded


def test_lines_of_a_kind_become_one_with_an_example() -> None:
    lines = [Note("opset", f"split_{i}: Split 11 -> Split 13") for i in range(28)]
    shown = [str(one) for one in folded([*lines[:5], "something else", *lines[5:], "another"])]
    assert shown == [
        "28 nodes rewritten for a newer opset, such as: split_0: Split 11 -> Split 13",
        "something else",
        "another",
    ]


def test_a_single_line_is_itself_and_equal_ones_are_counted() -> None:
    assert [str(one) for one in folded([Note("bias", "one"), "same", "same"])] == ["one", "2 x same"]


def test_every_line_is_kept_under_its_kind() -> None:
    assert by_kind([Note("bias", "a"), "plain", Note("opset", "b"), Note("bias", "c")]) == {
        "bias": ["a", "c"],
        "opset": ["b"],
    }


def test_every_kind_has_a_meaning() -> None:
    assert set(MEANING) == set(KINDS)


def test_a_kind_survives_copies_and_processes() -> None:
    note = Note("constant", "text")
    for twin in (copy.deepcopy(note), pickle.loads(pickle.dumps(note))):
        assert (twin, twin.kind) == ("text", "constant")
