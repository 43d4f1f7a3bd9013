"""Samples for a command: from -d, or random numbers where they were asked for by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.errors import ConfigError
from onnxq.json_file import JsonMapping

if TYPE_CHECKING:
    from onnxq.cli.shapes import Shape
    from onnxq.config import Config
    from onnxq.graph import Graph
    from onnxq.runtime.dataset import Dataset
    from onnxq.types import QuantPlan

Preprocess = JsonMapping | str | None


def open_data(
    graph: Graph,
    data: str | None,
    random: int | None,
    samples: int | None,
    preprocess: Preprocess = None,
    shapes: Mapping[str, Shape] | None = None,
) -> Dataset:
    """The dataset for a model; without -d and --random the error says what can be given.

    Random numbers are made as the model wants them, so `preprocess` has nothing to do there; their `shapes` are chosen
    where the model leaves them free and nobody gives them, and a note says how.
    """
    from onnxq.runtime.dataset import open_dataset
    from onnxq.runtime.random_data import random_dataset, random_shapes
    from onnxq.runtime.session import input_infos

    if data is not None and random is not None:
        raise ConfigError("give either -d DATA or --random N, not both")
    inputs = input_infos(graph)
    if random is not None:
        sizes, notes = random_shapes(graph, shapes)
        made = random_dataset(inputs, random if samples is None else min(random, samples), shapes=sizes)
        made.source.noted.update(dict.fromkeys(notes))
        return made
    if shapes:
        raise ConfigError(
            "--shape gives random samples their sizes here: it needs --random N, and the data of -d has its own"
        )
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
