"""The float model of a comparison is run once, however many files are held against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import onnxq
from onnxq.graph import Graph
from onnxq.targets import get_backend
from onnxq.verify import CheckSamples, FloatSide, float_side, verify
from tools.bench.models import tiny
from tools.bench.samples import Samples, image

SAMPLES = 4


@pytest.mark.parametrize(("keep", "runs"), [(2**20, SAMPLES), (0, 2 * SAMPLES)])
def test_a_second_file_finds_the_outputs_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: int, runs: int
) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(tiny(), str(path))
    feeds = list(Samples(lambda random: image(random, 3, 8), SAMPLES))
    config = {"effort": 0, "minimum_sqnr_db": -100.0}
    result = onnxq.quantize(path, backend="onnxruntime", data=feeds, out=tmp_path / "out", config=config)
    count = {"sessions": 0, "runs": 0}
    make, run = float_side.unoptimized_session_of, float_side.run_session

    def counted_session(*args: Any, **named: Any) -> Any:
        count["sessions"] += 1
        return make(*args, **named)

    def counted_run(*args: Any, **named: Any) -> Any:
        count["runs"] += 1
        return run(*args, **named)

    monkeypatch.setattr(float_side, "unoptimized_session_of", counted_session)
    monkeypatch.setattr(float_side, "run_session", counted_run)
    original = Graph.load(path)
    side = FloatSide(original, keep=keep)
    samples = CheckSamples(feeds, SAMPLES)
    backend = get_backend("onnxruntime")

    first, second = (verify(original, result.model, result.plan, backend, samples, reference=side) for _ in range(2))

    assert count == {"sessions": 1, "runs": runs}
    assert first.outputs == second.outputs
    side.close()
    verify(original, result.model, result.plan, backend, samples, reference=side)
    assert count == {"sessions": 2, "runs": runs + SAMPLES}
