"""Fewer mutations with the same finding: what is left is what matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tools.fuzz.cases import Case


def shrink(case: Case, still_found: Callable[[Case], bool]) -> Case:
    """Leave out one mutation after the other as long as the finding stays (ddmin with pieces of one)."""
    index = 0
    while index < len(case.mutations) and len(case.mutations) > 1:
        fewer = replace(case, mutations=case.mutations[:index] + case.mutations[index + 1 :])
        if still_found(fewer):
            case, index = fewer, 0
        else:
            index += 1
    return case
