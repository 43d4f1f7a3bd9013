"""AMD Quark on ONNX: quantize_model with its A8W8 recipe from end to end (load, optimize, calibrate, insert, save)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import chdir
from pathlib import Path

from quark.onnx import (
    AdaRoundConfig,
    CalibMethod,
    CLEConfig,
    Int8Spec,
    ModelQuantizer,
    QConfig,
    QLayerConfig,
    QuantGranularity,
)
from quark.onnx.quantization.config.algorithm import AlgoConfig

from tools.bench.peers.formats import W8A8, W8A8_PER_TENSOR
from tools.bench.peers.onnxruntime import Reader, raised
from tools.bench.peers.protocol import Action, Job, Writer, main
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

FINETUNED = {"data_size": 1000, "batch_size": 2, "early_stop": True}
"""As in its recipe A8W8_ADAROUND."""


def _writer(granularity: QuantGranularity, algorithms: Sequence[AlgoConfig] = ()) -> Writer:
    def write(model: Path, samples: Sequence[Feed], result: Path) -> None:
        tensors = QLayerConfig(activation=Int8Spec(), weight=Int8Spec(quant_granularity=granularity))
        config = QConfig(global_config=tensors, algo_config=list(algorithms), extra_options=dict(OPTIONS))
        source, target = str(raised(model, result.parent).resolve()), str(result.resolve())
        with chdir(result.parent):
            ModelQuantizer(config).quantize_model(source, target, Reader(samples))

    return write


WRITERS: dict[str, dict[str, Writer]] = {
    form: {
        "default": _writer(granularity),
        "CLE": _writer(granularity, [CLEConfig()]),
        "CLE, AdaRound": _writer(granularity, [CLEConfig(), AdaRoundConfig(learning_rate=0.1, **FINETUNED)]),
    }
    for form, granularity in ((W8A8, QuantGranularity.Channel), (W8A8_PER_TENSOR, QuantGranularity.Tensor))
}

if __name__ == "__main__":
    main(JOBS, "amd-quark", WRITERS)
