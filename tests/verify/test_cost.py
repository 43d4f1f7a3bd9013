"""Checking a written file costs little more than running the float model and the file on the samples."""

from __future__ import annotations

from pathlib import Path

import onnx

import onnxq
from onnxq.graph import Graph
from onnxq.runtime.session import make_session
from onnxq.targets import get_backend
from onnxq.verify import verify
from onnxq.verify.check_samples import CheckSamples
from onnxq.verify.pace import pace_for
from tests.cpu_time import spent
from tools.bench.models import mobilenetv2
from tools.bench.samples import Samples, image

SIZE, SAMPLES = 96, 16


def test_checks_cost_little_more_than_their_runs(tmp_path: Path) -> None:
    """They once took eight times these runs: in sessions whose threads waited for each other, and three times over."""
    onnx.save(mobilenetv2(SIZE), str(tmp_path / "float.onnx"))
    feeds = list(Samples(lambda random: image(random, 3, SIZE), SAMPLES))
    config = {"effort": 0, "minimum_sqnr_db": -100.0}
    result = onnxq.quantize(
        tmp_path / "float.onnx", backend="onnxruntime", data=feeds, out=tmp_path / "out", config=config
    )
    original = Graph.load(tmp_path / "float.onnx")
    pace = pace_for(original, {"input": (1, 3, SIZE, SIZE)}, SAMPLES)

    begun = spent()
    for path in (tmp_path / "float.onnx", result.model):
        session = make_session(path, threads=1, optimize="none")
        for feed in feeds:
            session.run(None, feed)
    runs, begun = spent() - begun, spent()
    samples = CheckSamples(feeds, SAMPLES, pace=pace)
    report = verify(original, result.model, result.plan, get_backend("onnxruntime"), samples)
    took = spent() - begun

    assert report.passed
    assert report.samples == SAMPLES
    assert took < 4 * runs
