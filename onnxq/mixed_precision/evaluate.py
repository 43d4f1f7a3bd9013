"""Metrics of a float model and of models made of it, on the same samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxq.errors import ConfigError
from onnxq.files import json_number
from onnxq.glance import MOST_NAMED, counted, notebook_html, short_name, short_repr
from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.mixed_precision.evaluation import open_evaluation
from onnxq.mixed_precision.text import evaluation_table, metric_text
from onnxq.ptq.search.evaluator import AGAINST_FLOAT, Evaluator, UserMetric
from onnxq.runtime import input_infos


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The metrics, by their names, of the float model and of each of the others.

    lower_is_better   metrics that are best where they are smallest, as far as that is known
    """

    samples: int
    of_float: Mapping[str, float]
    of_models: Mapping[str, Mapping[str, float]]
    lower_is_better: frozenset[str]
    notes: tuple[str, ...]

    def to_json(self) -> JsonObject:
        return {
            "samples": self.samples,
            "float": _numbers(self.of_float),
            "models": {name: _numbers(values) for name, values in self.of_models.items()},
            "lower_is_better": sorted(self.lower_is_better),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        facts = [
            f"{short_name(model)} {name} {metric_text(name, value)}"
            for model, values in (("float", self.of_float), *self.of_models.items())
            for name, value in values.items()
            if model != "float" or name not in AGAINST_FLOAT
        ]
        return short_repr("Evaluation", f"on {counted(self.samples, 'sample')}", *facts[:MOST_NAMED])

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each model."""
        columns, rows = evaluation_table(self, "float")
        return notebook_html(counted(self.samples, "sample"), (), [name.lstrip(">") for name in columns], rows)


def evaluate_graphs(
    reference: Graph,
    models: Mapping[str, Graph],
    data: Any,
    *,
    metrics: Sequence[str | UserMetric] = ("sqnr_db",),
    labels: str | None = None,
    samples: int | None = None,
    preprocess: Any = None,
) -> Evaluation:
    """`data` is what `open_evaluation` takes, with labels where a metric needs them.

    Each model computes what its file says: Q/DQ pairs are not replaced by kernels of integers.
    """
    for name, graph in models.items():
        refuse_another(name, graph, reference)
    found = open_evaluation(
        data, _fed([reference, *models.values()]), None, labels=labels, limit=samples, preprocess=preprocess
    )
    of_float: dict[str, float] = {}
    of_models: dict[str, dict[str, float]] = {name: {} for name in models}
    lower: set[str] = set()
    for metric in metrics:
        evaluator = Evaluator(reference, None, found.feeds, metric=metric, labels=found.labels)
        if evaluator.name in of_float:
            raise ConfigError(f"the metric '{evaluator.name}' is asked for twice: give each once, under its own name")
        if evaluator.lower_is_better:
            lower.add(evaluator.name)
        of_float[evaluator.name] = evaluator.of_float().value
        for name, graph in models.items():
            of_models[name][evaluator.name] = evaluator.of_graph(graph).value
    rows = sum(len(next(iter(feed.values()))) if found.alike else 1 for feed in found.feeds)
    count = rows if found.labels is None else len(found.labels)
    return Evaluation(count, of_float, of_models, frozenset(lower), found.notes)


def refuse_another(name: str, graph: Graph, reference: Graph) -> None:
    """A model with other inputs or outputs is none that was made of the float model."""
    for what, needed, there in (
        ("input", graph.input_names, reference.input_names),
        ("output", reference.output_names, graph.output_names),
    ):
        missing = next((one for one in needed if one not in there), None)
        if missing is not None:
            lacks = "the float model" if what == "input" else "it"
            raise ConfigError(
                f"{name} was not made of this float model: {lacks} has no {what} '{missing}', but {', '.join(there)}"
            )


def _fed(graphs: Sequence[Graph]) -> Graph:
    """The graph that says most about sizes: a model may have been made for one number of samples."""
    return max(graphs, key=lambda graph: sum(isinstance(size, int) for one in input_infos(graph) for size in one.shape))


def _numbers(values: Mapping[str, float]) -> JsonObject:
    return {name: json_number(value) for name, value in values.items()}
