"""rknn-toolkit2 builds the QDQ model as it is, and its simulator is within steps of onnxruntime; hybrid too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.formats.node_by_node import first_output
from tests.formats.written import write_golden
from tests.golden_graphs import GOLDEN
from tests.readers.environment import reader_python, record, run_check
from tools.readers.catalogue import READERS

pytestmark = pytest.mark.readers

SAMPLES = 8
LEAST_DB = 30.0
"""The simulator rounds scales to fixed-point factors: results differ by a step here and there."""
MOST_STEPS = 3.5
HYBRID_DB = 25.0
"""The toolkit quantizes weights and some tensors of its own making itself."""


@pytest.mark.parametrize("name", ["residual", "depthwise", "concat"])
def test_the_toolkit_builds_and_runs_what_was_written(name: str, tmp_path: Path) -> None:
    reader_python("rknn")
    written = write_golden(name, "rknn", tmp_path / "out")
    samples = GOLDEN[name]().samples[:SAMPLES]
    model = onnx.load(tmp_path / "out" / "model.onnx")
    inputs = np.stack([next(iter(sample.values())) for sample in samples])
    np.savez(tmp_path / "samples.npz", input=inputs, expected=first_output(model, samples))
    answer = run_check("rknn", tmp_path / "out", tmp_path / "samples.npz")
    version = READERS["rknn"].version()
    step = float(written.qparams[written.graph.output_names[0]].scale)
    for level in (3, 2):
        found = answer[f"qdq_level_{level}"]
        record("rknn", version, "rknn", name, f"QDQ, optimization level {level}: SQNR, dB", found["sqnr_db"])
        assert found["sqnr_db"] > LEAST_DB
        assert found["largest_difference"] < MOST_STEPS * step
    hybrid = answer["hybrid"]
    record("rknn", version, "rknn", name, "ranges through hybrid quantization: SQNR, dB", hybrid["sqnr_db"])
    assert hybrid["sqnr_db"] > HYBRID_DB
    assert hybrid["tensors_with_our_parameters"] >= hybrid["tensors_of_the_toolkit"] - 2
