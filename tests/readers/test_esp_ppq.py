"""esp-ppq finds the same exponents from the same samples, computes the same integers, and writes an .espdl file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxq.emit.simulate import simulate
from tests.formats.node_by_node import first_output
from tests.formats.written import write_golden
from tests.golden_graphs import GOLDEN
from tests.readers.environment import reader_python, record, run_check
from tools.readers.catalogue import READERS

pytestmark = pytest.mark.readers


@pytest.mark.parametrize("chip", ["esp32p4", "esp32s3", "c"])
@pytest.mark.parametrize("name", ["residual", "depthwise"])
def test_exponents_and_results_agree(name: str, chip: str, tmp_path: Path) -> None:
    reader_python("esp_ppq")
    written = write_golden(name, f"espdl:chip={chip}", tmp_path / "out")
    samples = GOLDEN[name]().samples
    graph, _ = simulate(written.graph, written.plan, written.qparams, written.backend)
    inputs = np.stack([next(iter(sample.values())) for sample in samples])
    np.savez(tmp_path / "samples.npz", input=inputs, expected=first_output(graph.to_model(), samples))
    answer = run_check("esp_ppq", tmp_path / "out", tmp_path / "samples.npz", chip)
    version, target = READERS["esp_ppq"].version(), f"espdl:chip={chip}"
    record("esp_ppq", version, target, name, "exponents that differ from its own", answer["other"])
    record("esp_ppq", version, target, name, "largest difference of results", answer["largest_difference"])
    assert answer["same"] > 20
    assert answer["other"] == 0
    step = float(written.qparams[written.graph.output_names[0]].scale)
    assert answer["largest_difference"] <= step
    assert answer["espdl_bytes"] > 1000
