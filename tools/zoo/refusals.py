"""What a command says that ends with another exit code than 0: is there a cause, and something to do next?

The gate reads the words as a user does. A next step is something to copy or to do: an option, a configuration key, a
command of onnxq, or a sentence in the imperative.
"""

from __future__ import annotations

import re

from tools.zoo.verdicts import Verdict

INTERNAL_CODES = (3, 70)
REFUSAL_CODES = (1, 2)
MOST_LETTERS = 3000

_OPTION = re.compile(r"(?<!\w)--?[a-z][\w-]*\b")
_KEY = re.compile(r"\b(?:inputs|outputs|overrides|limits|formats|observer|skip|effort|minimum_sqnr_db)\b[.\s=\[\"']")
_COMMAND = re.compile(r"\bonnxq [a-z]+\b")
_IMPERATIVES = (
    "add|allow|ask|calibrate|check|choose|convert|cut|declare|exclude|export|feed|fix|fold|give|install|keep|"
    "leave|lower|make|name|pass|put|quantize|raise|read|remove|rename|replace|run|save|see|set|shorten|skip|"
    "split|strip|take|try|upgrade|use|write"
)
_IMPERATIVE = re.compile(rf"(?:^|[.;:,]\s+(?:or\s+|and\s+)?|\bor )(?:{_IMPERATIVES})\b", re.IGNORECASE | re.MULTILINE)
_LOW = re.compile(r"is below the required|is silent")
_CAUSE = re.compile(r"^\s*cause: ", re.MULTILINE)
_PREFIX = re.compile(r"^(?:error|failed|failure|check failed):\s*", re.IGNORECASE)


def reason_of(said: str) -> str:
    """The lines that say why, without notes and warnings around them."""
    lines = [line.rstrip() for line in said.splitlines() if line.strip()]
    lines = [line for line in lines if not line.lstrip().startswith(("warning:", "note:"))]
    first = next((number for number, line in enumerate(lines) if _PREFIX.match(line)), 0)
    return shortened("\n".join(lines[first:]), MOST_LETTERS)


def shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 4] + " ..."


def has_cause(reason: str) -> bool:
    """Whether it says why; that a result is low or silent is what has to be explained, not an explanation."""
    return bool(reason) and (_LOW.search(reason) is None or _CAUSE.search(reason) is not None)


def has_next_step(reason: str) -> bool:
    text = _PREFIX.sub("", reason)
    return any(pattern.search(text) for pattern in (_OPTION, _KEY, _COMMAND, _IMPERATIVE))


def rate_refusal(exit_code: int, reason: str) -> Verdict:
    if exit_code not in REFUSAL_CODES or "Traceback (most recent call last)" in reason:
        return Verdict.INTERNAL_FAULT
    return Verdict.REFUSED if has_cause(reason) and has_next_step(reason) else Verdict.UNEXPLAINED
