"""Text from models and files made safe to show: characters that a terminal or a drawing would obey become escapes.

Names may hold anything. Control characters move the cursor, change titles and colours or answer as if typed; format
characters change the order in which text is read. They are shown as Python writes them: \\x1b, \\u202e.
"""

from __future__ import annotations

import re
import unicodedata

INDENT = "  "

_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control, format (bidi and zero-width ones), lone surrogates, separators of lines and paragraphs."""

_SUSPECT = re.compile(r"[^\x20-\x7e]")


def one_line(text: str) -> str:
    """The text with escapes for everything that is not shown as it is, newlines included."""
    return _SUSPECT.sub(_shown, text)


def lines(text: str) -> str:
    """The text with escapes, and its newlines kept; every line but the first is indented.

    So no name with a newline in it can begin a line, which would look like one of ours.
    """
    first, *others = text.split("\n")
    indented = [line if line.startswith(INDENT) else INDENT + line.lstrip(" ") for line in others]
    return "\n".join(one_line(line) for line in (first, *indented))


def _shown(found: re.Match[str]) -> str:
    letter = found.group()
    if unicodedata.category(letter) not in _CATEGORIES:
        return letter
    return letter.encode("unicode_escape").decode("ascii")
