"""AMD Quark on ONNX: quantize_model with its A8W8 recipe from end to end (load, optimize, calibrate, insert, save)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import chdir
from pathlib import Path

from quark.onnx import CalibMethod, Int8Spec, ModelQuantizer, QConfig, QLayerConfig

from tools.bench.peers.onnxruntime import Reader
from tools.bench.peers.protocol import Action, Job, main
from tools.bench.samples import Feed

# The options of its A8W8 recipe; int8 symmetric per tensor on both sides is the default of Int8Spec.
OPTIONS = {"ForceQuantizeNoInputCheck": True, "AlignSlice": False, "FoldRelu": True, "AlignConcat": True}


def _job(method: CalibMethod) -> Job:
    def job(model: Path, samples: Iterable[Feed], folder: Path) -> Action:
        def action() -> None:
            tensors = QLayerConfig(
                activation=Int8Spec(calibration_method=method), weight=Int8Spec(calibration_method=method)
            )
            # A copy of the options: Quark moves them about in the object that it is given.
            config = QConfig(global_config=tensors, extra_options=dict(OPTIONS))
            source, result = str(model.resolve()), str(folder / "quantized.onnx")
            with chdir(folder):  # it writes quantized_info.csv where it runs
                ModelQuantizer(config).quantize_model(source, result, Reader(samples))

        return action

    return job


JOBS: dict[str, Job] = {
    f"quantize {method.name}": _job(method) for method in (CalibMethod.MinMax, CalibMethod.Percentile)
}

if __name__ == "__main__":
    main(JOBS, "amd-quark")
