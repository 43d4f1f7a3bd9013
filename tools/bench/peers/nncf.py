"""NNCF on ONNX: nncf.quantize from end to end (load, calibrate, insert, save), with and without bias correction.

It quantizes activations of ONNX files with 8 bits and nothing below; 4 bits exist for weights alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import nncf
import onnx
from nncf.quantization.advanced_parameters import (
    AdvancedCompressionParameters,
    AdvancedQuantizationParameters,
    GroupSizeFallbackMode,
    OverflowFix,
    QuantizationParameters,
)

from tools.bench.peers.formats import BLOCK, W4, W4_ZERO_POINTS, W8A8, W8A8_PER_TENSOR
from tools.bench.peers.onnxruntime import NARROW_OPSET, preprocessed, raised
from tools.bench.peers.protocol import Action, Job, Writer, main
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


def _writer(*, per_channel: bool = True, thorough: bool = False, transformer: bool = False) -> Writer:
    """`thorough`: asymmetric activations, bias correction layer after layer, all bits of weights; off by default.

    Batch norms are folded before, which the tool leaves to others. `transformer` is its own name for models with
    attention, which it smooths (SmoothQuant); they keep the fast bias correction, as the other one fails on attention.
    """

    def write(model: Path, samples: Sequence[Feed], result: Path) -> None:
        settings = AdvancedQuantizationParameters(overflow_fix=OverflowFix.DISABLE if thorough else None)
        if not per_channel:
            settings.weights_quantization_params = QuantizationParameters(per_channel=False)
        source = preprocessed(model, result.parent) if thorough else model
        quantized = nncf.quantize(
            onnx.load(str(source)),
            nncf.Dataset(samples),
            subset_size=len(samples),
            preset=nncf.QuantizationPreset.MIXED if thorough else None,
            fast_bias_correction=transformer or not thorough,
            model_type=nncf.ModelType.TRANSFORMER if transformer else None,
            advanced_parameters=settings,
        )
        onnx.save(quantized, str(result))

    return write


def _compressor(mode: nncf.CompressWeightsMode, **algorithms: bool) -> Writer:
    def write(model: Path, samples: Sequence[Feed], result: Path) -> None:
        compressed = nncf.compress_weights(
            onnx.load(str(raised(model, result.parent, NARROW_OPSET))),
            mode=mode,
            group_size=BLOCK,
            ignored_scope=nncf.IgnoredScope(types=["Conv"], validate=False),  # the format is one of matrix products
            backup_mode=nncf.BackupMode.NONE,  # as others: what is not quantized to 4 bits stays float
            dataset=nncf.Dataset(samples) if algorithms else None,
            subset_size=len(samples),
            # Layers whose size is no multiple of the block stay as they are instead of ending the run.
            advanced_parameters=AdvancedCompressionParameters(group_size_fallback_mode=GroupSizeFallbackMode.IGNORE),
            **algorithms,
        )
        onnx.save(compressed, str(result))

    return write


WRITERS: dict[str, dict[str, Writer]] = {
    **{
        form: {
            "default": _writer(per_channel=per_channel),
            "full bias correction, mixed preset": _writer(per_channel=per_channel, thorough=True),
            "transformer, mixed preset": _writer(per_channel=per_channel, thorough=True, transformer=True),
        }
        for form, per_channel in ((W8A8, True), (W8A8_PER_TENSOR, False))
    },
    **{
        form: {
            "default": _compressor(mode),
            "scale estimation": _compressor(mode, scale_estimation=True),
            "AWQ, scale estimation": _compressor(mode, awq=True, scale_estimation=True),
        }
        for form, mode in (
            (W4, nncf.CompressWeightsMode.INT4_SYM),
            (W4_ZERO_POINTS, nncf.CompressWeightsMode.INT4_ASYM),
        )
    },
}

if __name__ == "__main__":
    main(JOBS, "nncf", WRITERS)
