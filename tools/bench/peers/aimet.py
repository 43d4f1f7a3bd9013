"""AIMET-ONNX: its simulation model from end to end (load, fold, calibrate, insert, save)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import aimet_onnx
import onnx
from aimet_onnx.batch_norm_fold import fold_all_batch_norms_to_weight

from tools.bench.peers.formats import BLOCK, W4, W4A4, W4A8, W8A8, W8A8_PER_TENSOR, ends
from tools.bench.peers.protocol import Action, Job, Writer, main
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


PER_TENSOR = "common/quantsim_config/default_config.json"
"""Below its own folder; "default" is the twin of this file with weights per channel."""
ADAROUND_STEPS = 2000
"""Of each layer; its default of 10,000 takes the better part of an hour for a small network on one core."""


def _placement(*, per_channel: bool) -> str:
    return "default" if per_channel else str(Path(aimet_onnx.__file__).parent / PER_TENSOR)


def _save(simulation: aimet_onnx.QuantizationSimModel, result: Path) -> None:
    onnx.save(simulation.to_onnx_qdq(export_int32_bias=True, prequantize_constants=True), str(result))


def _writer(
    weight_bits: int,
    activation_bits: int,
    steps: Sequence[str] = (),
    *,
    per_channel: bool = True,
    scheme: str = "min_max",
) -> Writer:
    """`steps` are among cle, seq_mse and adaround, in that order."""

    def write(model: Path, samples: Sequence[Feed], result: Path) -> None:
        network = onnx.load(str(model))
        fold_all_batch_norms_to_weight(network)
        if "cle" in steps:
            from aimet_onnx.cross_layer_equalization import equalize_model

            equalize_model(network)
        wide = ends(network)
        types = {4: aimet_onnx.int4, 8: aimet_onnx.int8}
        simulation = aimet_onnx.QuantizationSimModel(
            network,
            param_type=types[weight_bits],
            activation_type=types[activation_bits],
            quant_scheme=scheme,
            config_file=_placement(per_channel=per_channel),
            providers=["CPUExecutionProvider"],
            path=str(result.parent),
        )
        for layer in wide:
            for name in (layer.weight, layer.activation):
                if name in simulation.qc_quantize_op_dict:
                    simulation.qc_quantize_op_dict[name].set_bitwidth(8)
        if "seq_mse" in steps:
            aimet_onnx.apply_seq_mse(simulation, samples)
        if "adaround" in steps:
            aimet_onnx.apply_adaround(simulation, samples, ADAROUND_STEPS)
        simulation.compute_encodings(samples)
        _save(simulation, result)

    return write


def _block_writer(steps: Sequence[str] = ()) -> Writer:
    """Blocks of 4-bit weights and float activations."""

    def write(model: Path, samples: Sequence[Feed], result: Path) -> None:
        from aimet_onnx.quantsim import set_blockwise_quantization_for_weights

        simulation = aimet_onnx.QuantizationSimModel(
            onnx.load(str(model)),
            param_type=aimet_onnx.int4,
            providers=["CPUExecutionProvider"],
            path=str(result.parent),
        )
        matrices = ("MatMul", "Gemm")
        set_blockwise_quantization_for_weights(simulation, matrices, bitwidth=4, symmetric=True, block_size=BLOCK)
        if "seq_mse" in steps:
            aimet_onnx.apply_seq_mse(simulation, samples)
        for name, quantizer in simulation.qc_quantize_op_dict.items():
            # Blocks are on the weights of matrix products; everything else stays float.
            quantizer.enabled = name in simulation.param_names and quantizer.quant_info.blockSize > 0
        simulation.compute_encodings(samples)
        _save(simulation, result)

    return write


def _settings(weight_bits: int, activation_bits: int, per_channel: bool) -> dict[str, Writer]:
    bits = (weight_bits, activation_bits)
    return {
        "default": _writer(*bits, per_channel=per_channel),
        "tf_enhanced": _writer(*bits, per_channel=per_channel, scheme="tf_enhanced"),
        "CLE, SeqMSE": _writer(*bits, ("cle", "seq_mse"), per_channel=per_channel),
        "CLE, AdaRound": _writer(*bits, ("cle", "adaround"), per_channel=per_channel, scheme="tf_enhanced"),
    }


WRITERS: dict[str, dict[str, Writer]] = {
    W8A8: _settings(8, 8, per_channel=True),
    W8A8_PER_TENSOR: _settings(8, 8, per_channel=False),
    W4A8: _settings(4, 8, per_channel=True),
    W4A4: _settings(4, 4, per_channel=True),
    W4: {"default": _block_writer(), "SeqMSE": _block_writer(("seq_mse",))},
}

if __name__ == "__main__":
    main(JOBS, "aimet-onnx", WRITERS)
