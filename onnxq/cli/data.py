"""Samples for a command: from -d, or random numbers where they were asked for by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.errors import ConfigError

if TYPE_CHECKING:
    from onnxq.config import Config
    from onnxq.graph import Graph
    from onnxq.runtime.dataset import Dataset
    from onnxq.types import QuantPlan

Preprocess = Mapping[str, Any] | str | None


def open_data(
    graph: Graph, data: str | None, random: int | None, samples: int | None, preprocess: Preprocess = None
) -> Dataset:
    """The dataset for a model; without -d and --random the error says what can be given.

    Random numbers are made as the model wants them, so `preprocess` has nothing to do there.
    """
    from onnxq.runtime.dataset import open_dataset, random_dataset
    from onnxq.runtime.session import input_infos

    if data is not None and random is not None:
        raise ConfigError("give either -d DATA or --random N, not both")
    inputs = input_infos(graph)
    if random is not None:
        return random_dataset(inputs, random if samples is None else min(random, samples))
    return open_dataset(data, inputs, limit=samples, preprocess=preprocess)


def chosen_preprocess(settings: Config, plan: QuantPlan | None, data: str | None) -> Preprocess:
    """What options or configuration say; otherwise, for images, what the plan was made with."""
    from onnxq.runtime.sources import holds_images

    if settings.preprocess is not None or plan is None or data is None or not holds_images(Path(data)):
        return settings.preprocess
    planned: Preprocess = plan.config.get("preprocess")
    return planned


def data_warnings(random: int | None) -> list[str]:
    """What the report has to say about the data: numbers from random samples must not pass for measured ones."""
    if random is None:
        return []
    return [f"calibrated on {random} random samples: accuracy and ranges mean nothing, give real data with -d"]
