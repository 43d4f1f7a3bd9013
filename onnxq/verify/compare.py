"""Layer by layer: where does a quantized model leave its float original?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from onnxq.errors import DataError, ModelError
from onnxq.graph import Graph
from onnxq.moved import renamed_arguments
from onnxq.numerics import SqnrAccumulator
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.runtime.tap import Tap, default_memory_limit, memory_groups


@dataclass(frozen=True)
class LayerError:
    """How far one tensor is from its float original; `node` and `op` made it in the float model."""

    tensor: str
    node: str
    op: str
    sqnr_db: float
    cosine: float
    max_abs: float


class WithModel(Protocol):
    """What has written a model: a Result of onnxq."""

    @property
    def model(self) -> Path: ...


@renamed_arguments(float_path="model", quantized_path="quantized", dataset="data")
def compare_layers(
    model: Path | str | Graph,
    quantized: Path | str | Graph | WithModel,
    data: Any,
    samples: int = 4,
    *,
    memory_limit_bytes: int | None = None,
) -> list[LayerError]:
    """The error of every float tensor that both models have under the same name, the worst SQNR first.

    `quantized` may be a Result. `data` is what `onnxq.quantize` takes (docs/data.md), of which the first `samples`
    feeds are run.
    Each tensor shows the error of everything before it. Both models compute quantization as it is defined, without
    fused integer kernels. Tensors inside bodies of If, Loop and Scan are not compared; tensors that are no floats, or
    whose shapes differ between the models, are left out. `memory_limit_bytes` bounds the tensors held at once, for both
    models together.
    """
    original = model if isinstance(model, Graph) else Graph.load(model)
    if isinstance(quantized, Graph):
        other = quantized
    else:
        other = Graph.load(quantized if isinstance(quantized, str | os.PathLike) else quantized.model)
    shared = list(_shared(original, other))
    if not shared:
        raise ModelError(
            "the two models have no computed float tensor of the same name: compare a model with the one it was "
            "quantized from"
        )
    if samples < 1:
        raise DataError(f"there are no samples to compare the models on: samples is {samples}")
    opened = data if isinstance(data, Dataset) else open_dataset(data, input_infos(original))
    feeds = list(islice(opened, samples))
    sums: dict[str, SqnrAccumulator] = {name: SqnrAccumulator() for name in shared}
    different: set[str] = set()
    limit = (default_memory_limit() if memory_limit_bytes is None else memory_limit_bytes) // 2
    for group in memory_groups(original, shared, feeds[0], limit):
        floats, integers = Tap(original, group, optimize="basic"), Tap(other, group, optimize="none")
        for number, feed in enumerate(feeds):
            expected, measured = floats.run(feed, f"sample {number}"), integers.run(feed, f"sample {number}")
            for name in group:
                if not _comparable(expected[name], measured[name]):
                    different.add(name)
                else:
                    sums[name].add(expected[name], measured[name])
    layers = [_layer(original, name, sums[name]) for name in shared if name not in different]
    return sorted(layers, key=lambda layer: layer.sqnr_db)


def _comparable(expected: Any, measured: Any) -> bool:
    """Float tensors of one shape; types that the file does not declare show only here, and so do sequences."""
    if not isinstance(expected, np.ndarray) or not isinstance(measured, np.ndarray):
        return False
    return bool(expected.shape == measured.shape and expected.dtype.kind == "f" and measured.dtype.kind == "f")


def _shared(original: Graph, quantized: Graph) -> Iterator[str]:
    """Float tensors that nodes of the main graph make in both models, in the order of the float model."""
    made = {tensor.name for node in quantized.gs.nodes for tensor in node.outputs if node.op != "Constant"}
    for node in original.gs.nodes:
        if node.op == "Constant":
            continue
        for tensor in node.outputs:
            dtype = original.dtype(tensor)
            if tensor.name and tensor.name in made and (dtype is None or dtype.kind == "f"):
                yield str(tensor.name)


def _layer(graph: Graph, tensor: str, total: SqnrAccumulator) -> LayerError:
    producer = graph.producer(tensor)
    node, op = ("", "") if producer is None else (str(producer.name), str(producer.op))
    return LayerError(tensor, node, op, total.value, total.cosine, total.max_abs_error)
