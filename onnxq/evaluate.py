"""`onnxq.evaluate`: metrics of a float model and of quantized ones, from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.mixed_precision.evaluate import Evaluation, evaluate_graphs
from onnxq.pipeline.artifacts import Result
from onnxq.pipeline.delivered import model_in
from onnxq.ptq.search.evaluator import UserMetric


def evaluate(
    model: Path | str | onnx.ModelProto | Graph,
    *quantized: Any,
    data: Any,
    metric: str | UserMetric | Sequence[str | UserMetric] = "sqnr_db",
    labels: str | None = None,
    samples: int | None = None,
    preprocess: Any = None,
) -> Evaluation:
    """Metrics of a float model and of models that were made of it, on the same samples.

    quantized   files, folders of runs, Results of onnxq, or models in memory
    data        what `onnxq.quantize` takes; for metrics with labels an .npz file or a dict with an array for each input
                and one of 'labels', a pair (inputs, labels), or a function that returns one of these
    metric      one or several: sqnr_db, kl, agreement, accuracy, cross_entropy, perplexity, retrieval,
                module:function, or a function of (outputs, labels)
    labels      the name of the labels in the data
    samples     at most so many samples

    Each model computes what its file says; `onnxq.simulate` writes what the chip of a target computes.
    """
    metrics = (metric,) if isinstance(metric, str) or callable(metric) else tuple(metric)
    if not metrics:
        raise ConfigError("metric is empty: name at least one, such as sqnr_db")
    models: dict[str, Graph] = {}
    for number, one in enumerate(quantized, 1):
        name, graph = _opened(one, number)
        models[name if name not in models else f"{name} ({number})"] = graph
    reference = _opened(model, 0)[1]
    return evaluate_graphs(
        reference, models, data, metrics=metrics, labels=labels, samples=samples, preprocess=preprocess
    )


def _opened(given: object, number: int) -> tuple[str, Graph]:
    """A model, and what to call it."""
    if isinstance(given, Graph):
        return f"model {number}", given
    if isinstance(given, onnx.ModelProto):
        return f"model {number}", Graph.from_model(given)
    path = given.model if isinstance(given, Result) else Path(str(given))
    file = model_in(path) if path.is_dir() else path
    return str(file), Graph.load(file)
