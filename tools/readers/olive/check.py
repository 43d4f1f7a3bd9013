"""Runs workflows of Olive with the pass OnnxqQuantization.

    check.py MODEL.onnx SAMPLES.npz OUT

One workflow takes the samples as onnxq does, one as a data set that is declared to Olive, one from the command line.
Prints one JSON object: workflow -> the model that Olive has written, and what lies beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

os.environ["OLIVE_DISABLE_TELEMETRY"] = "1"

import numpy as np
import olive
import torch
from olive.data.registry import Registry
from olive.workflows import run

from onnxq.integrations.olive import package_config


class Samples(torch.utils.data.Dataset):
    """One sample and a label at a time, as Olive's data sets have them."""

    def __init__(self, path: str) -> None:
        self.arrays = dict(np.load(path))

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, number: int) -> tuple[dict[str, np.ndarray], int]:
        return {name: array[number] for name, array in self.arrays.items()}, 0


@Registry.register_dataset()
def samples_of(path: str, **ignored: object) -> Samples:
    return Samples(path)


def workflow(model: str, out: Path, **settings: object) -> dict[str, object]:
    return {
        "input_model": {"type": "ONNXModel", "model_path": model},
        "passes": {"q": {"type": "OnnxqQuantization", "settings": {"effort": 0}, **settings}},
        "output_dir": str(out),
        "cache_dir": str(out.with_name(f"{out.name}-cache")),
        "evaluate_input_model": False,
        "log_severity_level": 3,
    }


def written(out: Path) -> dict[str, object]:
    models = sorted(out.rglob("*.onnx"))
    beside = sorted({path.name for model in models for path in model.parent.iterdir()})
    return {"models": list(map(str, models)), "beside": beside}


def main() -> None:
    model, samples, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    found = {}
    by_name = {"target": "tensorrt", "data": samples}
    run(workflow(model, out / "data", **by_name), package_config=package_config())
    found["data"] = written(out / "data")
    declared = {"name": "digits", "load_dataset_config": {"type": "samples_of", "params": {"path": samples}}}
    run(workflow(model, out / "declared", target="onnxruntime", data_config=declared), package_config=package_config())
    found["declared"] = written(out / "declared")
    module = [sys.executable, "-m", "onnxq.integrations.olive"]
    package = subprocess.run(module, capture_output=True, text=True, check=True)
    (out / "package.json").write_text(package.stdout)
    (out / "run.json").write_text(json.dumps(workflow(model, out / "command", **by_name)))
    command = ["run", "--run-config", str(out / "run.json"), "--package-config", str(out / "package.json")]
    done = subprocess.run([sys.executable, "-m", "olive", *command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    found["command"] = written(out / "command")
    print(json.dumps({"version": version("olive-ai"), "olive": olive.__version__, "workflows": found}))


if __name__ == "__main__":
    main()
