"""Finding: something in a file that a target does not take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One violation of a target's limits: which rule, where, what is wrong, and what to do about it."""

    rule: str
    tensor: str
    node: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"[{self.rule}] {self.message}. {self.remedy}"
