"""NNCF on ONNX: nncf.quantize from end to end (load, calibrate, insert, save), with and without bias correction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import nncf
import onnx
from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters

from tools.bench.peers.protocol import Action, Job, main
from tools.bench.samples import Feed


def _job(bias_correction: bool) -> Job:
    def job(model: Path, samples: Sequence[Feed], folder: Path) -> Action:
        def action() -> None:
            quantized = nncf.quantize(
                onnx.load(str(model)),
                nncf.Dataset(samples),
                subset_size=len(samples),
                advanced_parameters=AdvancedQuantizationParameters(disable_bias_correction=not bias_correction),
            )
            onnx.save(quantized, str(folder / "quantized.onnx"))

        return action

    return job


JOBS: dict[str, Job] = {"quantize": _job(True), "quantize, no bias correction": _job(False)}

if __name__ == "__main__":
    main(JOBS, "nncf")
