"""Samples are compared on all cores at once; the report is the same as with one core."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import onnxq
from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.verify import pace
from onnxq.verify.pace import Pace, pace_for
from tools.bench.models import tiny
from tools.bench.samples import samples_for


def checks(model: onnx.ModelProto, folder: Path) -> JsonObject:
    data = list(samples_for("tiny", 24))
    config = {"effort": 0, "minimum_sqnr_db": -100.0}
    result = onnxq.quantize(model, backend="onnxruntime", data=data, out=folder, config=config)
    found = dict(result.report["checks"])
    del found["seconds"]
    return found


def test_the_report_does_not_depend_on_the_number_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(pace, "available_cores", lambda cores=cores: cores)
        found.append(checks(tiny(), tmp_path / str(cores)))

    assert found[0] == found[1] == found[2]
    assert found[0]["samples"] == 16


@pytest.mark.parametrize(
    ("cores", "samples", "memory", "expected"),
    [
        (8, 16, 2**40, Pace(8, 1)),
        (8, 3, 2**40, Pace(3, 2)),
        (8, 1, 2**40, Pace(1, 8)),
        (1, 16, 2**40, Pace(1, 1)),
        (8, 16, 50_000, Pace(2, 4)),
        (8, 16, 1, Pace(1, 8)),
    ],
    ids=["a core each", "few samples", "one sample", "one core", "room for two", "no room"],
)
def test_cores_go_to_samples_as_far_as_there_are_samples_and_memory(
    monkeypatch: pytest.MonkeyPatch, cores: int, samples: int, memory: int, expected: Pace
) -> None:
    monkeypatch.setattr(pace, "available_cores", lambda: cores)
    monkeypatch.setattr(pace, "default_memory_limit", lambda: memory)
    graph = Graph.from_model(tiny())
    graph.infer_shapes()

    assert pace_for(graph, {"input": (1, 3, 8, 8)}, samples)[:2] == expected[:2]
