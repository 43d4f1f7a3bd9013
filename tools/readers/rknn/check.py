"""Puts files of onnxq before rknn-toolkit2 and runs them in its simulator.

    check.py FOLDER SAMPLES.npz

FOLDER holds model.onnx (QDQ), model_deploy_model.onnx (float) and model.quantization.cfg; SAMPLES.npz holds `input`
(n, 1, c, h, w) and `expected` (n, ...), what onnxruntime computes for the first output of model.onnx. The QDQ model is
built as it is. For the hybrid way the toolkit writes its own parameters in step 1, the ranges of onnxq are put into
that file, and step 2 builds the float model with them. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rknn.api import RKNN
from ruamel.yaml import YAML

PLATFORM = "rk3588"


def sqnr_db(expected: np.ndarray, found: np.ndarray) -> float:
    signal, noise = expected.astype(np.float64), found.astype(np.float64) - expected
    return float(10 * np.log10(np.sum(signal**2) / max(np.sum(noise**2), 1e-30)))


def started(level: int) -> RKNN:
    tool = RKNN(verbose=False)
    tool.config(target_platform=PLATFORM, optimization_level=level)
    return tool


def results(tool: RKNN, inputs: np.ndarray) -> np.ndarray:
    """The first output for every sample, from the simulator."""
    assert tool.init_runtime() == 0, "the simulator does not start"
    found = np.stack([tool.inference(inputs=[sample], data_format="nchw")[0] for sample in inputs])
    tool.release()
    return found


def built_from_qdq(model: Path, inputs: np.ndarray, level: int) -> np.ndarray:
    tool = started(level)
    assert tool.load_onnx(model=str(model)) == 0, "load_onnx refuses the QDQ model"
    assert tool.build(do_quantization=False) == 0, "build refuses the QDQ model"
    return results(tool, inputs)


def built_by_hybrid(folder: Path, inputs: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """The float model quantized with the parameters of onnxq, and how they compare with the toolkit's own."""
    for number, sample in enumerate(inputs):
        np.save(f"sample{number}.npy", sample)
    Path("dataset.txt").write_text("".join(f"sample{number}.npy\n" for number in range(len(inputs))))
    tool = started(2)
    assert tool.load_onnx(model=str(folder / "model_deploy_model.onnx")) == 0
    assert tool.hybrid_quantization_step1(dataset="dataset.txt", proposal=False) == 0
    tool.release()
    yaml = YAML()
    path = Path("model_deploy_model.quantization.cfg")
    own, ours = yaml.load(path.read_text()), yaml.load((folder / "model.quantization.cfg").read_text())
    entries, given = own["quantize_parameters"], ours["quantize_parameters"]
    shared = [name for name in entries if name in given]
    ratios = [
        given[name]["scale"][0] / entries[name]["scale"][0]
        for name in shared
        if entries[name]["scale"] and given[name]["scale"]
    ]
    for name in shared:
        entries[name].update({key: given[name][key] for key in ("min", "max")})
    with path.open("w") as stream:
        yaml.dump(own, stream)
    tool = started(2)
    step = tool.hybrid_quantization_step2(
        model_input="model_deploy_model.model",
        data_input="model_deploy_model.data",
        model_quantization_cfg=str(path),
    )
    assert step == 0, "step 2 refuses the parameters"
    facts = {
        "tensors_of_the_toolkit": len(entries),
        "tensors_with_our_parameters": len(shared),
        "names_without": [name for name in entries if name not in given],
        "scale_ratio_min": min(ratios),
        "scale_ratio_median": float(np.median(ratios)),
        "scale_ratio_max": max(ratios),
    }
    return results(tool, inputs), facts


def main() -> None:
    folder, samples = Path(sys.argv[1]).resolve(), np.load(sys.argv[2])
    inputs, expected = samples["input"], samples["expected"]
    place = tempfile.mkdtemp()
    os.chdir(place)
    answer: dict[str, Any] = {}
    for level in (3, 2):
        found = built_from_qdq(folder / "model.onnx", inputs, level).reshape(expected.shape)
        answer[f"qdq_level_{level}"] = {
            "sqnr_db": sqnr_db(expected, found),
            "largest_difference": float(np.abs(found - expected).max()),
        }
    found, facts = built_by_hybrid(folder, inputs)
    answer["hybrid"] = {"sqnr_db": sqnr_db(expected, found.reshape(expected.shape)), **facts}
    shutil.rmtree(place)
    print()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
