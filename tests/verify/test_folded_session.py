"""Written files are run as they say, with what depends on constants alone computed once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxq
from onnxq.errors import OnnxqError
from onnxq.runtime.session import make_session
from onnxq.verify import roots
from onnxq.verify.roots import folded_session
from tools.bench.models import tiny
from tools.bench.samples import Samples, image

CONFIG = {"effort": 0, "minimum_sqnr_db": -100.0}
FEEDS = list(Samples(lambda random: image(random, 3, 8), 4))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(tiny(), str(tmp_path / "float.onnx"))
    return onnxq.quantize(
        tmp_path / "float.onnx", backend="onnxruntime", data=FEEDS, out=tmp_path / "out", config=CONFIG
    ).model


def test_the_outputs_are_those_of_the_nodes_as_they_are_written(file: Path) -> None:
    one, other = (
        folded_session(file, threads=1, nodes=100, weights=1000),
        make_session(file, threads=1, optimize="none"),
    )
    for feed in FEEDS:
        for found, expected in zip(one.run(None, feed), other.run(None, feed), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)  # sums in another order


def test_what_the_optimizer_refuses_is_run_without_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def refusing(*args: object, optimize: str, **named: object) -> object:
        made.append(optimize)
        if optimize != "none":
            raise onnxq.ModelError("a fusion failed")
        return make_session(*args, optimize="none", **named)  # type: ignore[arg-type]

    monkeypatch.setattr(roots, "make_session", refusing)
    assert folded_session(file, threads=1, nodes=100, weights=1000).run(None, FEEDS[0])
    assert made == ["basic", "none"]


def test_a_file_that_does_not_load_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(OnnxqError, match=r"broken\.onnx"):
        folded_session(tmp_path / "broken.onnx", threads=1, nodes=1, weights=1)


def test_weights_that_take_much_memory_in_float_are_dequantized_in_each_run(file: Path) -> None:
    levels = [
        folded_session(file, threads=1, nodes=100, weights=weights).get_session_options().graph_optimization_level
        for weights in (1000, 2**28)
    ]
    assert levels == [ort.GraphOptimizationLevel.ORT_ENABLE_BASIC, ort.GraphOptimizationLevel.ORT_DISABLE_ALL]
