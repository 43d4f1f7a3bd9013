"""One way to name nodes and tensors everywhere: exact, glob, `re:`, `op:`; the most specific pattern wins.

stem.conv        exactly this name
layer1.*         shell-style wildcards (* ? [abc])
re:layer\\d+/.*   a regular expression over the whole name
op:Conv          every node of this operator
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from onnxq.errors import ConfigError, did_you_mean

EXACT = 3
"""The rank of a pattern that is a name."""


@dataclass(frozen=True)
class Matcher:
    """A compiled pattern. `rank` orders patterns from general (op) to specific (exact name)."""

    pattern: str

    def __post_init__(self) -> None:
        if not self.pattern or self.pattern in ("re:", "op:"):
            raise ConfigError("an empty pattern matches nothing; give a name, a glob, re:REGEX or op:OPERATOR")
        if self.pattern.startswith("re:"):
            try:
                re.compile(self.pattern[3:])
            except re.error as error:
                raise ConfigError(f"pattern '{self.pattern}' is not a regular expression: {error}") from None

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        """What names are held against, compiled once: a pattern may meet thousands of them."""
        if self.pattern.startswith("re:"):
            return re.compile(self.pattern[3:])
        return re.compile(fnmatch.translate(self.pattern) if self.rank == 2 else re.escape(self.pattern))

    @property
    def rank(self) -> int:
        if self.pattern.startswith("op:"):
            return 0
        if self.pattern.startswith("re:"):
            return 1
        return 2 if any(sign in self.pattern for sign in "*?[") else EXACT

    def matches(self, name: str, op: str = "") -> bool:
        if self.pattern.startswith("op:"):
            return op == self.pattern[3:]
        if self._expression.fullmatch(name) is not None:
            return True
        return name == self.pattern and not self.pattern.startswith("re:")  # a name with a sign of globs in it


def resolve(patterns: Iterable[str], candidates: Mapping[str, str], what: str) -> dict[str, str]:
    """Candidate name -> the most specific pattern that names it. `candidates` maps names to operators.

    A pattern that names nothing is an error with the nearest names.
    """
    chosen: dict[str, tuple[int, str]] = {}
    for pattern in patterns:
        rank = rank_among(pattern, candidates)
        for name in names_matching(pattern, candidates, what):
            if name not in chosen or rank >= chosen[name][0]:
                chosen[name] = (rank, pattern)
    return {name: pattern for name, (_, pattern) in chosen.items()}


def rank_among(pattern: str, candidates: Mapping[str, str]) -> int:
    """How specific a pattern is for these names: one that is a name, also with a sign of globs in it, is exact."""
    return EXACT if pattern in candidates else Matcher(pattern).rank


def names_matching(pattern: str, candidates: Mapping[str, str], what: str) -> list[str]:
    """The candidates that a pattern names; none is an error with the nearest names."""
    matcher = Matcher(pattern)
    hits = [pattern] if pattern in candidates else [n for n, op in candidates.items() if matcher.matches(n, op)]
    if not hits:
        raise ConfigError(_nothing(pattern, candidates, what))
    return hits


def _nothing(pattern: str, candidates: Mapping[str, str], what: str) -> str:
    if pattern.startswith("op:"):
        operators = sorted(set(candidates.values()))
        near = did_you_mean(pattern[3:], operators)
        return f"'{pattern}' matches no {what}: the model has no such operator.{near} Operators: {', '.join(operators)}"
    plain = re.sub(r"[\\^$*+?()\[\]{}|]", "", pattern.removeprefix("re:"))  # as near to a name as a pattern comes
    near = did_you_mean(pattern, candidates) or did_you_mean(plain, candidates)
    return f"'{pattern}' matches no {what} of the model.{near}"
