"""Diagnosis: everything that was found out about a loss, as values; `text` renders them, reports keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxq.config import Config
from onnxq.diagnose.causes import Cause, Costly
from onnxq.diagnose.remedy import Trial, applied_document, nearly_best, price
from onnxq.files import json_number
from onnxq.glance import counted, decibels, notebook_html, short_name, short_repr
from onnxq.json_file import JsonObject


@dataclass(frozen=True)
class Diagnosis:
    """What costs most, why, and what fixes it.

    samples    how many were evaluated
    results    output, or part of one -> SQNR as it is
    before_db  the worst of them, or that of the calibrated model where this is better: what a remedy has to beat
    costly     quantizers, the costliest first
    causes     proven ones, the most important first
    trials     every remedy that was tried, also without gain
    combined   the remedies that pay, applied together; None where none does
    """

    backend: str
    samples: int
    results: Mapping[str, float]
    before_db: float
    costly: tuple[Costly, ...]
    causes: tuple[Cause, ...]
    trials: tuple[Trial, ...]
    combined: Trial | None
    target: str | None
    config: Config
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        codes = ", ".join(dict.fromkeys(str(cause.code) for cause in self.causes))
        both = self.combined
        return short_repr(
            "Diagnosis",
            f"for {short_name(self.backend)}",
            f"worst result {decibels(self.before_db)}",
            f"{counted(len(self.causes), 'cause')} ({codes})" if codes else "no cause found",
            f"{sum(trial.pays for trial in self.trials)} of {counted(len(self.trials), 'remedy', 'remedies')} pay",
            "" if both is None or both.after_db is None else f"{decibels(both.after_db)} with those that pay",
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the causes, and the remedies that pay with the line to copy."""
        from onnxq.diagnose.text import cause_text, outcome_text, remedy_line

        facts = [("worst result", decibels(self.before_db)), *(("cause", cause_text(cause)) for cause in self.causes)]
        tried = [*self.paying, *([] if self.combined is None else [self.combined])]
        rows = [(outcome_text(trial), remedy_line(trial.remedy, self.target)) for trial in tried]
        return notebook_html(f"Diagnosis for {self.backend}", facts, ("worst result", "remedy that pays"), rows)

    @property
    def paying(self) -> tuple[Trial, ...]:
        """Remedies that pay, those of the first cause first; of those that gain about as much, the cheapest."""
        found: list[Trial] = []
        for code in dict.fromkeys([*(cause.code for cause in self.causes), *(trial.cause for trial in self.trials)]):
            of_cause = [trial for trial in self.trials if trial.pays and trial.cause == code]
            alike = nearly_best(of_cause) if of_cause else []
            found += sorted(alike, key=lambda trial: (price(trial.remedy), -trial.gain_db))
            found += sorted((trial for trial in of_cause if trial not in alike), key=lambda trial: -trial.gain_db)
        return tuple(found)

    def remedied(self) -> JsonObject | None:
        """The configuration with what pays, as a document; None where nothing does, or only the user can do it."""
        return None if self.combined is None else applied_document(self.config, self.target, self.combined.remedy)

    def to_json(self) -> JsonObject:
        from onnxq.diagnose.text import cause_text, remedy_line

        return {
            "samples": self.samples,
            "sqnr_db": {name: json_number(value) for name, value in self.results.items()},
            "before_db": json_number(self.before_db),
            "quantizers": [row.to_json() for row in self.costly],
            "causes": [{**cause.to_json(), "text": cause_text(cause)} for cause in self.causes],
            "remedies": [{**trial.to_json(), "line": remedy_line(trial.remedy, self.target)} for trial in self.trials],
            "combined": None
            if self.combined is None
            else {**self.combined.to_json(), "line": remedy_line(self.combined.remedy, self.target)},
            "notes": list(self.notes),
        }
