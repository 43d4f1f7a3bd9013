"""onnxruntime.quantization: its calibrators alone, and quantize_static from end to end.

What its documentation asks for first is set-up and not in the times: quant_pre_process, and opset 13, without which
weights cannot be quantized per channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import onnx
from onnx import version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    create_calibrator,
    quantize_static,
)
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry
from onnxruntime.quantization.shape_inference import quant_pre_process

from tools.bench.peers.formats import BLOCK, W4, W4_ZERO_POINTS, W4A4, W4A8, W8A8, W8A8_PER_TENSOR, ends
from tools.bench.peers.protocol import Action, Job, Writer, main
from tools.bench.samples import Feed

PER_CHANNEL_OPSET = 13
NARROW_OPSET = 21
"""The first one with 4-bit types."""
NARROW = {"default": "MinMax", "Percentile": "Percentile"}
METHODS = {
    "MinMax": CalibrationMethod.MinMax,
    "Percentile": CalibrationMethod.Percentile,
    "Entropy": CalibrationMethod.Entropy,
}


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Feeds, one after the other, as onnxruntime.quantization wants them."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds: Iterator[Feed] = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


def preprocessed(model: Path, folder: Path, least_opset: int = PER_CHANNEL_OPSET) -> Path:
    result = folder / "preprocessed.onnx"
    quant_pre_process(str(raised(model, folder, least_opset)), str(result), skip_symbolic_shape=True)
    return result


def raised(model: Path, folder: Path, least_opset: int = PER_CHANNEL_OPSET) -> Path:
    """The model in this opset or a later one."""
    loaded = onnx.load(str(model))
    opset = next(entry.version for entry in loaded.opset_import if entry.domain in ("", "ai.onnx"))
    if opset >= least_opset:
        return model
    result = folder / "raised.onnx"
    onnx.save(version_converter.convert_version(loaded, least_opset), str(result))
    return result


def quantize_file(
    model: Path,
    samples: Iterable[Feed],
    result: Path,
    method: str = "MinMax",
    *,
    per_channel: bool = True,
    reduce_range: bool = False,
) -> Path:
    """Static QDQ with uint8 activations and int8 weights, as for onnxq's backend of this runtime.

    `reduce_range` is its setting for x86 processors without VNNI: 7-bit weights, whose products do not saturate.
    """
    quantize_static(
        str(model),
        str(result),
        Reader(samples),
        quant_format=QuantFormat.QDQ,
        per_channel=per_channel,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        reduce_range=reduce_range,
        calibrate_method=METHODS[method],
    )
    return result


def _calibrate(model: Path, samples: Iterable[Feed], folder: Path, method: str) -> None:
    # The operators that quantize_static would calibrate for.
    operators = sorted({*QLinearOpsRegistry, *QDQRegistry})
    augmented = str(folder / "augmented.onnx")
    calibrator = create_calibrator(model, operators, augmented_model_path=augmented, calibrate_method=METHODS[method])
    calibrator.collect_data(Reader(samples))
    calibrator.compute_data()


def _calibrator_job(method: str) -> Job:
    def job(model: Path, samples: Iterable[Feed], folder: Path) -> Action:
        ready = preprocessed(model, folder)
        return lambda: _calibrate(ready, samples, folder, method)

    return job


def _whole_job(method: str) -> Job:
    def job(model: Path, samples: Iterable[Feed], folder: Path) -> Action:
        ready = preprocessed(model, folder)
        return lambda: quantize_file(ready, samples, folder / "quantized.onnx", method)

    return job


JOBS: dict[str, Job] = {
    **{f"calibrator {method}": _calibrator_job(method) for method in METHODS},
    **{f"quantize_static {method}": _whole_job(method) for method in METHODS},
}


def _writer(method: str, *, per_channel: bool = True, reduce_range: bool = False) -> Writer:
    def write(model: Path, samples: Sequence[Feed], result: Path) -> None:
        ready = preprocessed(model, result.parent)
        quantize_file(ready, samples, result, method, per_channel=per_channel, reduce_range=reduce_range)

    return write


def _narrow_writer(method: str, activation: QuantType) -> Writer:
    """4-bit weights; the first and the last layer get 8 bits by overrides of their tensors."""

    def write(model: Path, samples: Sequence[Feed], result: Path) -> None:
        ready = preprocessed(model, result.parent, NARROW_OPSET)
        wide: dict[str, list[dict[str, object]]] = {}
        for layer in ends(onnx.load(str(ready))):
            wide[layer.weight] = [{"quant_type": QuantType.QInt8, "axis": layer.axis}]
            if activation is not QuantType.QUInt8:
                wide[layer.activation] = [{"quant_type": QuantType.QUInt8}]
        quantize_static(
            str(ready),
            str(result),
            Reader(samples),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=activation,
            weight_type=QuantType.QInt4,
            calibrate_method=METHODS[method],
            extra_options={"TensorQuantOverrides": wide},
        )

    return write


def _block_writer(algorithm: str, **settings: bool) -> Writer:
    def write(model: Path, samples: Sequence[Feed], result: Path) -> None:
        from onnxruntime.quantization import matmul_nbits_quantizer as blocks  # here: it needs onnx_ir, HQQ torch too

        config = getattr(blocks, f"{algorithm}WeightOnlyQuantConfig")(block_size=BLOCK, **settings)
        quantizer = blocks.MatMulNBitsQuantizer(onnx.load(str(model)), algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(str(result))

    return write


_WHOLE = {
    "default": {"method": "MinMax"},
    "Percentile": {"method": "Percentile"},
    "Entropy": {"method": "Entropy"},
    "MinMax, reduce_range": {"method": "MinMax", "reduce_range": True},
}
WRITERS: dict[str, dict[str, Writer]] = {
    **{
        form: {name: _writer(**settings, per_channel=per_channel) for name, settings in _WHOLE.items()}  # type: ignore[arg-type]
        for form, per_channel in ((W8A8, True), (W8A8_PER_TENSOR, False))
    },
    W4A8: {name: _narrow_writer(method, QuantType.QUInt8) for name, method in NARROW.items()},
    W4A4: {name: _narrow_writer(method, QuantType.QUInt4) for name, method in NARROW.items()},
    W4: {"default": _block_writer("Default", is_symmetric=True)},
    W4_ZERO_POINTS: {"default": _block_writer("Default", is_symmetric=False), "HQQ": _block_writer("HQQ")},
}

if __name__ == "__main__":
    main(JOBS, "onnxruntime", WRITERS)
