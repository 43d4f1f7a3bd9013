"""The digit classifier as the subject of studies, with few samples, and a variant with one very sensitive layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.demo import load_data, model_path
from onnxq.graph import Graph
from onnxq.mixed_precision import Subject

SubjectOf = Callable[..., Subject]

SENSITIVE = "pointwise.conv"
"""The layer that gets outliers."""


@pytest.fixture(scope="session")
def digits() -> SubjectOf:
    """The demo for a backend, evaluated on 48 test images; named arguments change the subject."""
    data = load_data()

    def make(backend: str = "onnxruntime", **changes: Any) -> Subject:
        given: dict[str, Any] = {
            "backend": backend,
            "data": data.calibration[:16],
            "evaluate_on": (data.test_images[:48], data.test_labels[:48]),
            **changes,
        }
        return Subject(given.pop("model", model_path()), **given)

    return make


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that tests share which are not about evaluations."""
    return tmp_path_factory.mktemp("known")


@pytest.fixture(scope="session")
def with_outliers() -> Graph:
    """The demo with one huge weight, in a channel that the next layer makes small again: it ruins a scale."""
    graph = Graph.load(model_path())
    weight = graph.values(f"{SENSITIVE}.weight").copy()
    weight[0, 0] = 60.0 * np.abs(weight).max()  # [64, 32, 1, 1]: one of 2048 numbers
    graph.set_values(f"{SENSITIVE}.weight", weight)
    later = graph.values("head.conv.weight").copy()
    later[:, 0] *= 1e-3
    graph.set_values("head.conv.weight", later)
    return graph
