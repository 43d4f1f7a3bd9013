"""NVIDIA ModelOpt on ONNX: modelopt.onnx.quantization.quantize from end to end, calibrated on the processor.

Its Q/DQ placement is the one for TensorRT. Computation outside Q/DQ stays float32 (its default is float16), so that the
times do not hold a conversion that the other tools do not make.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from modelopt.onnx.quantization import quantize

from tools.bench.peers.onnxruntime import Reader
from tools.bench.peers.protocol import Action, Job, main
from tools.bench.samples import Feed


class RewindableReader(Reader):
    """The two further methods that ModelOpt calls: it runs the first sample alone to learn the shapes of products."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        super().__init__(feeds)
        self._all = feeds

    def get_first(self) -> Feed:
        return self._all[0]

    def rewind(self) -> None:
        self._feeds = iter(self._all)


def _job(method: str) -> Job:
    def job(model: Path, samples: Sequence[Feed], folder: Path) -> Action:
        def action() -> None:
            quantize(
                str(model),
                quantize_mode="int8",
                calibration_method=method,
                calibration_data_reader=RewindableReader(samples),
                calibration_eps=["cpu"],
                high_precision_dtype="fp32",
                output_path=str(folder / "quantized.onnx"),
                log_level="ERROR",
            )

        return action

    return job


JOBS: dict[str, Job] = {"quantize max": _job("max"), "quantize entropy": _job("entropy")}

if __name__ == "__main__":
    main(JOBS, "nvidia-modelopt")
