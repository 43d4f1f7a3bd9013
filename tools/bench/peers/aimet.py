"""AIMET-ONNX: its simulation model from end to end (load, fold, calibrate, insert, save)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import aimet_onnx
import onnx
from aimet_onnx.batch_norm_fold import fold_all_batch_norms_to_weight

from tools.bench.peers.protocol import Action, Job, main
from tools.bench.samples import Feed


def _job(scheme: str) -> Job:
    def job(model: Path, samples: Iterable[Feed], folder: Path) -> Action:
        def action() -> None:
            network = onnx.load(str(model))
            fold_all_batch_norms_to_weight(network)  # AIMET leaves this step to its user
            simulation = aimet_onnx.QuantizationSimModel(
                network,
                param_type=aimet_onnx.int8,
                activation_type=aimet_onnx.int8,
                quant_scheme=scheme,
                config_file="default",
                providers=["CPUExecutionProvider"],
                path=str(folder),
            )
            simulation.compute_encodings(samples)
            # Integer biases and weights, as in the files of the other tools; the tool's default is to leave them float.
            quantized = simulation.to_onnx_qdq(export_int32_bias=True, prequantize_constants=True)
            onnx.save(quantized, str(folder / "quantized.onnx"))

        return action

    return job


# Its "percentile" is deprecated and has no way to set the percentile, so it is not measured.
JOBS: dict[str, Job] = {"quantize min_max": _job("min_max"), "quantize tf_enhanced": _job("tf_enhanced")}

if __name__ == "__main__":
    main(JOBS, "aimet-onnx")
