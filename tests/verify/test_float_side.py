"""The float model of a comparison is run once, however many files are held against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.graph import Graph
from onnxq.runtime.sections import unoptimized_session
from onnxq.targets import get_backend
from onnxq.verify import CheckSamples, FloatSide, float_side, verify
from tools.bench.models import tiny
from tools.bench.network import NetworkBuilder
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


def large_network(size: int = 16) -> onnx.ModelProto:
    net = NetworkBuilder(1)
    net.channels["input"] = 3
    x = net.relu(net.batchnorm(net.conv("input", 32, 3)))
    x = net.relu(net.conv(x, 32, 3, group=32))
    return net.model("large", ["batch", 3, size, size], net.classifier(x, 10), ["batch", 10])


def prepared_side(monkeypatch: pytest.MonkeyPatch, wrong: bool) -> tuple[FloatSide, list[int], list[dict[str, Any]]]:
    """A side for 16 samples of a large model, how often its session without the optimizer has run, and the samples.

    With `wrong` the optimizer's kernels compute something else.
    """
    graph = Graph.from_model(large_network())
    feeds = list(Samples(lambda random: image(random, 3, 16), 16))
    runs = [0]
    make, look = float_side.unoptimized_session_of, float_side.look_session

    class Session:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def run(self, *args: Any) -> Any:
            runs[0] += 1
            return self.inner.run(*args)

    class Wrong(Session):
        def run(self, *args: Any) -> Any:
            return [value + np.float32(1e-3) * np.abs(value).max() for value in self.inner.run(*args)]

    monkeypatch.setattr(float_side, "unoptimized_session_of", lambda *a, **named: Session(make(*a, **named)))
    if wrong:
        monkeypatch.setattr(float_side, "look_session", lambda *a, **named: Wrong(look(*a, **named)))
    side = FloatSide(graph)
    side.prepare((), 1, first=feeds[0], bytes_of_others=2**30, where="the first")
    return side, runs, feeds


@pytest.mark.parametrize(("wrong", "expected"), [(False, 1), (True, 17)])
def test_a_large_model_runs_optimized_where_that_is_the_same(
    monkeypatch: pytest.MonkeyPatch, wrong: bool, expected: int
) -> None:
    side, runs, feeds = prepared_side(monkeypatch, wrong)
    found = [side.outputs((), number, feed, "", 1)[0] for number, feed in enumerate(feeds)]
    assert runs == [expected]
    exact = unoptimized_session(side.graph, threads=1)
    for number, (feed, output) in enumerate(zip(feeds, found, strict=True)):
        (value,) = exact.run(None, feed)
        exactly = wrong or number == 0
        assert (
            output.tobytes() == value.tobytes()
            if exactly
            else np.abs(output - value).max() < 1e-5 * np.abs(value).max()
        )


def test_a_model_that_decides_runs_node_by_node() -> None:
    model = large_network()
    model.graph.node.append(onnx.helper.make_node("ArgMax", [model.graph.output[0].name], ["class"], name="class"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("class", onnx.TensorProto.INT64, None))
    assert FloatSide(Graph.from_model(large_network()))._optimizing_pays(2**30)
    assert not FloatSide(Graph.from_model(model))._optimizing_pays(2**30)
    assert not FloatSide(Graph.from_model(large_network()))._optimizing_pays(2**20)
