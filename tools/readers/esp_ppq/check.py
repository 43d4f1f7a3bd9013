"""Puts the exponents of onnxq into esp-ppq's graph of the same model, runs it, and writes an .espdl file.

    check.py FOLDER SAMPLES.npz CHIP

FOLDER holds model_deploy_model.onnx and model_espdl.json; SAMPLES.npz holds `input` (n, 1, ...) and `expected`
(n, ...), what onnxruntime computes for the first output of the simulated model; CHIP is esp32p4, esp32s3 or c. esp-ppq
first calibrates the float model itself with the same samples (minmax): those exponents are compared with the ones of
onnxq, which then take their place. Prints one JSON object.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from esp_ppq import QuantizationSettingFactory, TorchExecutor
from esp_ppq.api.espdl_interface import espdl_quantize_onnx
from esp_ppq.core import QuantizationStates
from esp_ppq.IR import QuantableOperation
from esp_ppq.parser.espdl_exporter import EspdlExporter

COUNTED = (QuantizationStates.ACTIVATED, QuantizationStates.PASSIVE)


def sqnr_db(expected: np.ndarray, found: np.ndarray) -> float:
    signal, noise = expected.astype(np.float64), found.astype(np.float64) - expected
    return float(10 * np.log10(np.sum(signal**2) / max(np.sum(noise**2), 1e-30)))


def quantized(model: Path, samples: list[torch.Tensor], chip: str, place: Path) -> Any:
    setting = QuantizationSettingFactory.espdl_setting()
    setting.quantize_activation_setting.calib_algorithm = "minmax"
    setting.quantize_parameter_setting.baking_parameter = False
    setting.fusion_setting.align_elementwise_to = "None"  # every tensor has the exponent that the table says
    return espdl_quantize_onnx(
        onnx_import_file=str(model),
        espdl_export_file=str(place / "own.espdl"),
        calib_dataloader=samples,
        calib_steps=len(samples),
        input_shape=list(samples[0].shape),
        target=chip,
        collate_fn=lambda sample: sample,
        setting=setting,
        error_report=False,
        skip_export=True,
        verbose=0,
    )


def run(graph: Any, samples: list[torch.Tensor]) -> np.ndarray:
    executor = TorchExecutor(graph, device="cpu")
    return np.stack([executor(sample)[0].detach().numpy() for sample in samples])


def put(graph: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """Replace the scales of a graph by those of the table; says how they compare."""
    same, other, lacking, differing = 0, 0, [], []
    for operation in graph.operations.values():
        if not isinstance(operation, QuantableOperation):
            continue
        for config, variable in operation.config_with_variable:
            root = config.dominated_by
            if root.state not in COUNTED or root.scale is None:
                continue
            if variable.name not in tensors:
                lacking.append(variable.name)
                continue
            ours = torch.pow(2.0, torch.tensor(tensors[variable.name]["exponent"], dtype=torch.float32))
            if root.scale.numel() == ours.numel() and torch.equal(root.scale.reshape(-1), ours.reshape(-1)):
                same += 1
            else:
                other += 1
                differing.append(variable.name)
            root.scale = ours.reshape(root.scale.shape) if root.scale.numel() == ours.numel() else ours
            assert torch.all(root.offset == 0)
    return {"same": same, "other": other, "differing": sorted(set(differing)), "not_in_table": sorted(set(lacking))}


def main() -> None:
    folder, data, chip = Path(sys.argv[1]), np.load(sys.argv[2]), sys.argv[3]
    expected = data["expected"]
    samples = [torch.from_numpy(sample) for sample in data["input"]]
    tensors = json.loads((folder / "model_espdl.json").read_text())["tensors"]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shutil.copy(folder / "model_deploy_model.onnx", place / "model.onnx")  # esp-ppq writes over its input
        graph = quantized(place / "model.onnx", samples, chip, place)
        own = run(graph, samples)
        facts = put(graph, tensors)
        found = run(graph, samples)
        EspdlExporter().export(str(place / "ours.espdl"), graph)
        size = (place / "ours.espdl").stat().st_size
    answer = {
        **facts,
        "sqnr_db_own_exponents": sqnr_db(expected, own.reshape(expected.shape)),
        "sqnr_db": sqnr_db(expected, found.reshape(expected.shape)),
        "largest_difference": float(np.abs(found.reshape(expected.shape) - expected).max()),
        "espdl_bytes": size,
    }
    print()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
