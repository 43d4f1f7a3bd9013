"""What the fuzzer says about a written model that onnxruntime takes, and its optimizer does not."""

from __future__ import annotations

from pathlib import Path

import onnxq
from tests.zoo import ZOO
from tools.fuzz.driver import _loading_error, _session_error


def test_a_model_that_the_report_wants_without_optimizations_is_loaded_without_them(tmp_path: Path) -> None:
    example = ZOO["conv_transpose_grouped_batch_norm"]()
    settings = {"effort": 0, "minimum_sqnr_db": -100.0}
    onnxq.quantize(
        example.model, backend="academic:a_bits=3", data=example.feeds[:1], out=tmp_path / "out", config=settings
    )
    written = tmp_path / "out" / "model.onnx"
    refused = "Unexpected data type for QuantizeLinear"  # onnxruntime's fusion of a Relu into an int4 QuantizeLinear
    assert refused in _session_error(written, optimize=True)
    assert _loading_error(written) == ""
    (tmp_path / "out" / "report.json").unlink()
    assert refused in _loading_error(written)
