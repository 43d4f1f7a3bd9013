"""Why a result is low, as the checks of a run ask for it: who looks for causes is not known here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from onnxq.json_file import JsonMapping
from onnxq.verify import ResultCheck

LOW_SQNR_DB = 20.0
"""Outputs below this are worth a warning."""

DIAGNOSE = "run 'onnxq diagnose' with the same model, target and data"
"""What to do where nobody has looked for a cause."""


@dataclass(frozen=True)
class Explanation:
    """Why a result is low: sentences for people, and the values behind them (`onnxq.diagnose`) for the report.

    diagnosis  None where it could not be made: the sentences say why
    remedy     the configuration with what fixes it; None where no configuration does
    """

    lines: tuple[str, ...]
    diagnosis: JsonMapping | None
    remedy: JsonMapping | None = None


def failed_diagnosis(reason: str) -> Explanation:
    """What is told where the cause of a low result was looked for in vain, because the search itself has failed."""
    return Explanation((f"the diagnosis itself failed: {reason}",), None)


class Examine(Protocol):
    """Finds out why results are low, or with `failed` why a run comes to nothing; None where nobody looks for it."""

    def __call__(self, results: Sequence[ResultCheck], *, failed: bool) -> Explanation | None: ...
