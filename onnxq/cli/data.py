"""Samples for a command: from -d, or random numbers where they were asked for by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.errors import ConfigError

if TYPE_CHECKING:
    from onnxq.graph import Graph
    from onnxq.runtime.dataset import Dataset


def open_data(graph: Graph, data: str | None, random: int | None, samples: int | None) -> Dataset:
    """The dataset for a model; without -d and --random the error says what can be given."""
    from onnxq.runtime.dataset import open_dataset, random_dataset
    from onnxq.runtime.session import input_infos

    if data is not None and random is not None:
        raise ConfigError("give either -d DATA or --random N, not both")
    inputs = input_infos(graph)
    if random is not None:
        return random_dataset(inputs, random if samples is None else min(random, samples))
    return open_dataset(data, inputs, limit=samples)


def data_warnings(random: int | None) -> list[str]:
    """What the report has to say about the data: numbers from random samples must not pass for measured ones."""
    if random is None:
        return []
    return [f"calibrated on {random} random samples: accuracy and ranges mean nothing, give real data with -d"]
