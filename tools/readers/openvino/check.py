"""Run models in OpenVINO and compare their outputs with given ones: python check.py SAMPLES.npz MODEL.onnx ...

SAMPLES.npz holds `input/<number>/<name>` and, for each file, `<file name>/<number>/<output name>`: what the outputs
should be. Computing happens in float32 where it is not in integers: the default of some processors is bfloat16. The
answer names, for each file, the largest difference relative to the largest value, the SQNR of all samples together and
of the one in the middle (the worse of two), and how many layers of each kind run on which element type.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import openvino

LAYERS = (
    "Convolution",
    "Deconvolution",
    "FullyConnected",
    "MatMul",
    "Pooling",
    "Eltwise",
    "FakeQuantize",
    "Concatenation",
)


def main(samples: Path, models: list[Path]) -> dict[str, Any]:
    held = np.load(samples)
    core = openvino.Core()
    answer = {path.name: check(core, path, held) for path in models}
    return {"version": openvino.__version__.split("-")[0], "models": answer}


def check(core: Any, path: Path, held: Any) -> dict[str, Any]:
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    feeds, wanted = defaultdict(dict), defaultdict(dict)
    for key in held.files:
        kind, number, name = key.split("/", 2)
        if kind == "input":
            feeds[number][name] = held[key]
        elif kind == path.name:
            wanted[number][name] = held[key]
    outputs: dict[str, Any] = {}
    for name in sorted({name for entry in wanted.values() for name in entry}):
        made = [compiled(feeds[number])[name] for number in wanted]
        outputs[name] = compare(np.stack(made), np.stack([wanted[number][name] for number in wanted]))
    return {"outputs": outputs, "layers": layers(compiled)}


def compare(made: np.ndarray, wanted: np.ndarray) -> dict[str, float]:
    """Two arrays with samples along the first axis."""
    error = np.abs(made.astype(np.float64) - wanted.astype(np.float64))
    noises, signals = (np.square(values, dtype=np.float64).reshape(len(values), -1) for values in (error, wanted))
    return {
        "difference": float(error.max() / max(np.abs(wanted).max(), 1e-30)),
        "sqnr_db": decibels(signals.sum(), noises.sum()),
        "typical_db": sorted(map(decibels, signals.sum(1), noises.sum(1)))[(len(made) - 1) // 2],
    }


def decibels(signal: float, noise: float) -> float:
    return 10 * math.log10(signal / noise) if noise and signal else 300.0


def layers(compiled: Any) -> dict[str, dict[str, int]]:
    """Kind of layer -> element type of its kernel -> how many, from the model as the plugin runs it."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = node.get_rt_info()
        kind = str(info["layerType"].astype(str))
        if kind in LAYERS:
            counted[kind][str(info["runtimePrecision"].astype(str))] += 1
    return {kind: dict(types) for kind, types in counted.items()}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])))
