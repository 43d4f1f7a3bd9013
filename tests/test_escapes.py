"""Text that is shown holds nothing that a terminal obeys, and begins no line that is not ours."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.escapes import lines, one_line


def test_what_a_terminal_obeys_is_shown_as_an_escape() -> None:
    assert one_line("a\x1b[31mb\x07\x9b\x7f") == "a\\x1b[31mb\\x07\\x9b\\x7f"
    assert one_line("\u202eevil\u2066\u200f\u2028") == "\\u202eevil\\u2066\\u200f\\u2028"
    assert one_line("a\r\n\tb\b") == "a\\r\\n\\tb\\x08"
    assert one_line("\ud800") == "\\ud800"


def test_names_of_every_language_stay_as_they_are() -> None:
    text = "größe/层.1 [bold] C:\\n \U0001f600 é"
    assert one_line(text) == text


def test_lines_of_ours_are_kept_and_no_line_but_the_first_begins_at_the_edge() -> None:
    assert lines("failed:\n  one\n    two") == "failed:\n  one\n    two"
    assert lines("no tensor 'x\nerror: forged'") == "no tensor 'x\n  error: forged'"
    assert lines("a\n error: b\r\nwarning: c") == "a\n  error: b\\r\n  warning: c"


@settings(max_examples=50)
@given(st.text())
def test_whatever_the_text_nothing_is_left_to_obey(text: str) -> None:
    def harmless(letter: str) -> bool:
        return unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp")

    assert all(map(harmless, one_line(text)))
    first, *others = lines(text).split("\n")
    assert all(map(harmless, "".join((first, *others))))
    assert all(line.startswith("  ") for line in others)
