"""The user's own metrics in a run: of the float model, of the written one, and what they must hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxq.errors import CheckFailed, ConfigError
from onnxq.files import json_number
from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.mixed_precision.evaluation import open_evaluation
from onnxq.mixed_precision.goals import Demand, read_demand
from onnxq.mixed_precision.text import loss_text, metric_text
from onnxq.ptq.search.evaluator import AGAINST_FLOAT, Evaluator, Score, UserMetric
from onnxq.runtime import Dataset


@dataclass(frozen=True)
class Task:
    """What a model is for, as a user says it.

    metrics   sqnr_db, kl, agreement, accuracy, module:function, or functions of (outputs, labels)
    data      what `open_evaluation` takes; None takes the first samples of the calibration data
    hold, max_drop, reach   what the first metric must keep, one of them at most (`onnxq.mixed_precision.goals`)
    """

    metrics: tuple[str | UserMetric, ...]
    data: Any = None
    labels: str | None = None
    samples: int | None = None
    hold: float | None = None
    max_drop: float | None = None
    reach: float | None = None

    @classmethod
    def of(
        cls, metric: str | UserMetric | Sequence[str | UserMetric] | None, data: Any = None, **further: Any
    ) -> Task | None:
        """The task of one metric or several; None where there is none, which leaves nothing for the rest to say."""
        if metric is None or (isinstance(metric, Sequence) and not metric):
            given = {"evaluate": data, **further}
            left = next((name for name, value in given.items() if value is not None), None)
            if left is not None:
                raise ConfigError(f"{left.replace('_', '-')} says nothing without a metric: give one with metric=")
            return None
        several = (metric,) if isinstance(metric, str) or callable(metric) else tuple(metric)
        return cls(several, data, **further)


class OpenTask:
    """A task with its data, measured on the float model: what is wrong with it is found before calibration."""

    def __init__(self, task: Task, original: Graph, calibration: Dataset | None, preprocess: Any) -> None:
        found = open_evaluation(
            task.data, original, calibration, labels=task.labels, limit=task.samples, preprocess=preprocess
        )
        rows = sum(len(next(iter(feed.values()))) if found.alike else 1 for feed in found.feeds)
        self._samples = rows if found.labels is None else len(found.labels)
        self._notes = found.notes
        self._evaluators = [
            Evaluator(original, None, found.feeds, metric=metric, labels=found.labels) for metric in task.metrics
        ]
        names = [one.name for one in self._evaluators]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"the metric '{twice}' is asked for twice: give each once, under its own name")
        self._of_float = [one.of_float() for one in self._evaluators]
        self._demand = self._asked(task)

    def _asked(self, task: Task) -> Demand | None:
        wishes = {"hold": task.hold, "max_drop": task.max_drop, "reach": task.reach}
        if all(value is None for value in wishes.values()):
            return None
        return read_demand(self._of_float[0], self._evaluators[0].lower_is_better, **wishes)

    def of_file(self, path: Path) -> JsonObject:
        """The entry of the report; CheckFailed where the demand is not met."""
        graph = Graph.load(path)
        scores = [one.of_graph(graph) for one in self._evaluators]
        if self._demand is not None and not self._demand.holds(scores[0]):
            raise CheckFailed(
                f"{self._text(0, scores[0])} on {self._samples} samples, and {self._demand.text} was asked for, so no "
                "files were written. More effort (--effort), 'onnxq search --fallback 16' with the same demand, or "
                "training may reach it"
            )
        return {
            "samples": self._samples,
            "metrics": [
                {
                    "name": one.name,
                    "float": json_number(before.value),
                    "quantized": json_number(after.value),
                    "lower_is_better": one.lower_is_better,
                    "against_float": one.name in AGAINST_FLOAT,
                    "text": self._text(number, after),
                }
                for number, (one, before, after) in enumerate(
                    zip(self._evaluators, self._of_float, scores, strict=True)
                )
            ],
            "demand": None if self._demand is None else self._demand.text,
            "notes": list(self._notes),
        }

    def _text(self, number: int, score: Score) -> str:
        """accuracy 97.20% -> 96.90% (-0.30 points); what holds a model against the float one has no first figure."""
        before, name = self._of_float[number], self._evaluators[number].name
        after = metric_text(name, score.value)
        if name in AGAINST_FLOAT:
            return f"{name} {after}"
        change = loss_text(name, score.value - before.value)
        return f"{name} {metric_text(name, before.value)} -> {after} ({change})"
