"""A reason is its text, with a code that programs ask for."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

from onnxq.types.reason import CODES, MEANING, Reason, by_code


def test_every_code_has_a_meaning() -> None:
    assert set(MEANING) == set(CODES)


def test_a_reason_is_its_text() -> None:
    reason = Reason("no_rule", "the chip has no rule for Erf")
    assert reason == "the chip has no rule for Erf" == str(reason)
    assert json.dumps({"node": reason}) == '{"node": "the chip has no rule for Erf"}'


def test_a_code_survives_copies_and_processes() -> None:
    reason = Reason("decides", "text")
    for twin in (copy.deepcopy(reason), pickle.loads(pickle.dumps(reason))):
        assert (twin, twin.code) == ("text", "decides")


def test_a_text_without_a_code_gets_one() -> None:
    assert Reason.of("why", "declined_by_target").code == "declined_by_target"
    assert Reason.of(Reason("not_float", "why"), "declined_by_target").code == "not_float"


def test_names_are_listed_under_the_codes_of_their_reasons() -> None:
    reasons = {"a": Reason("no_rule", "x"), "b": Reason("excluded", "y"), "c": Reason("no_rule", "z")}
    assert by_code(reasons) == {"no_rule": ["a", "c"], "excluded": ["b"]}


def test_every_code_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    assert [code for code, meaning in MEANING.items() if f"| `{code}` | {meaning} |" not in text] == []
