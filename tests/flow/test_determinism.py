"""Two runs give identical bytes, whatever the hash seed and the number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import onnxq
from onnxq.demo import load_data, model_path
backend, out, effort = sys.argv[1:]
data = load_data().calibration[:16]
onnxq.quantize(model_path(), backend=backend, data=data, out=out, config={"effort": int(effort)})
"""


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime"])
@pytest.mark.parametrize("effort", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_runs_with_other_hash_seeds_and_threads_write_the_same_bytes(backend: str, effort: int, tmp_path: Path) -> None:
    for run, (seed, threads) in enumerate([("0", "1"), ("1", "2"), ("12345", "1")]):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads}
        command = [sys.executable, "-c", SCRIPT, backend, str(tmp_path / str(run)), str(effort)]
        if threads == "1" and hasattr(os, "sched_setaffinity"):
            command = [sys.executable, "-c", "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
                       "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])", *command[1:]]  # fmt: skip
        subprocess.run(command, check=True, env=environment, cwd=Path(__file__).parents[2])
    for name in ("model.onnx", "plan.json", "qparams.json"):
        assert len({(tmp_path / str(run) / name).read_bytes() for run in range(3)}) == 1, name
