"""ncnn's int8 kernels, with the scales of the table, compute what the simulated model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxq.emit.simulate import simulate
from tests.formats.node_by_node import first_output
from tests.formats.written import Written, write_golden, write_model
from tests.golden_graphs import GOLDEN
from tests.readers.environment import reader_python, record, run_check

pytestmark = pytest.mark.readers

SAME_DB = 80.0
"""Float sums in another order; one step of difference in a single value of these models would give less than 60 dB."""


def in_ncnn(written: Written, samples: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    graph, _ = simulate(written.graph, written.plan, written.qparams, written.backend)
    inputs = np.stack([next(iter(sample.values()))[0] for sample in samples])
    np.savez(written.folder / "samples.npz", input=inputs, expected=first_output(graph.to_model(), samples))
    return run_check("ncnn", written.folder, written.folder / "samples.npz")


def test_a_residual_network_runs_in_int8_and_agrees(tmp_path: Path) -> None:
    reader_python("ncnn")
    samples = GOLDEN["residual"]().samples
    written = write_golden("residual", "ncnn", tmp_path / "out")
    answer = in_ncnn(written, samples)
    assert set(answer["int8_layers"]) == {node.name for node in written.graph.nodes() if node.op in ("Conv", "Gemm")}
    record("ncnn", answer["version"], "ncnn", "residual", "SQNR against the simulated model, dB", answer["sqnr_db"])
    assert answer["sqnr_db"] > SAME_DB
    assert answer["sqnr_db_winograd"] > SAME_DB


def large_positive_convolution() -> onnx.ModelProto:
    """All products are near the largest one: what overflows anywhere overflows here."""
    weight = np.random.default_rng(1).uniform(0.9, 1, (64, 64, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 64, 24, 24])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_six_bits_are_what_winograd_kernels_hold(tmp_path: Path) -> None:
    reader_python("ncnn")
    random = np.random.default_rng(2)
    samples = [{"x": random.uniform(0.9, 1, (1, 64, 24, 24)).astype(np.float32)} for _ in range(2)]
    answers = {
        backend: in_ncnn(write_model(large_positive_convolution(), samples, backend, tmp_path / f"out{i}"), samples)
        for i, backend in enumerate(("ncnn", "ncnn:winograd=off"))
    }
    for backend, answer in answers.items():
        figure = answer["sqnr_db_winograd"]
        record("ncnn", answer["version"], backend, "64 channels, 3x3", "SQNR in Winograd kernels, dB", figure)
        assert answer["sqnr_db"] > SAME_DB
    assert answers["ncnn"]["sqnr_db_winograd"] > SAME_DB
    if answers["ncnn:winograd=off"]["sqnr_db_winograd"] == answers["ncnn:winograd=off"]["sqnr_db"]:
        pytest.skip("ncnn has no Winograd kernels for this processor, so nothing overflows here")
    assert answers["ncnn:winograd=off"]["sqnr_db_winograd"] < 20
