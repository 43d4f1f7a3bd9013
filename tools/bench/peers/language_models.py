"""Weights of few bits by other tools: one file in, one file out, in the Python that has the tool.

    python -m tools.bench.peers.language_models JOB MODEL IDS RESULT BLOCK

MODEL is a decoder with a cache and IDS a .npz file with `ids`, prompts of one length. Nothing of onnxq is imported: the
interpreters of other tools have other libraries.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

FEATURES = ("MatMul", "SimplifiedLayerNormalization", "GroupQueryAttention", "Add", "Mul", "Sigmoid", "Gather")
Feeds = list[dict[str, np.ndarray]]


def feeds_of(model: Path, ids: Path) -> Feeds:
    """Each prompt with an empty past."""
    import onnxruntime

    inputs = onnxruntime.InferenceSession(str(model)).get_inputs()
    made = []
    for row in np.load(ids)["ids"]:
        feed = {"input_ids": row[None], "attention_mask": np.ones((1, len(row)), np.int64)}
        feed |= {one.name: np.zeros((1, one.shape[1], 0, one.shape[3]), np.float32) for one in inputs[2:]}
        made.append(feed)
    return made


class Reader:
    """Feeds as the calibrators of onnxruntime and of those who build on it want them."""

    def __init__(self, feeds: Feeds) -> None:
        self.feeds = feeds
        self.rewind()

    def rewind(self) -> None:
        self._left: Iterator[dict[str, np.ndarray]] = iter(self.feeds)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return iter(self.feeds)

    def get_first(self) -> dict[str, np.ndarray]:
        return self.feeds[0]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


Job = Callable[[Path, Feeds, Path, int], None]


def onnxruntime_nbits(method: str, bits: int, *, symmetric: bool = False, level: int | None = None) -> Job:
    def job(model: Path, feeds: Feeds, result: Path, block: int) -> None:
        from onnxruntime.quantization import matmul_nbits_quantizer as tool

        config: Any = None
        if method == "k_quant":
            config = tool.KQuantWeightOnlyQuantConfig()
        elif method == "hqq":
            config = tool.HQQWeightOnlyQuantConfig(block_size=block, bits=bits)
        elif method == "gptq":
            config = tool.GPTQWeightOnlyQuantConfig(calibration_data_reader=Reader(feeds), block_size=block)
        else:
            config = tool.DefaultWeightOnlyQuantConfig(
                block_size=block, is_symmetric=symmetric, accuracy_level=level, bits=bits
            )
        made = tool.MatMulNBitsQuantizer(
            onnx.load(model), bits, block, symmetric, accuracy_level=level, algo_config=config
        )
        made.process()
        onnx.save(made.model.model, result)

    return job


def quark(method: str) -> Job:
    def job(model: Path, feeds: Feeds, result: Path, block: int) -> None:
        from quark.onnx.quantizers import matmul_nbits_quantizer as tool

        configs: dict[str, Callable[[], Any]] = {
            "rtn": lambda: tool.DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=False, bits=4),
            "hqq": lambda: tool.HQQWeightOnlyQuantConfig(block_size=block, bits=4),
            "gptq": lambda: tool.GPTQWeightOnlyQuantConfig(
                calibration_data_reader=Reader(feeds), block_size=block, perchannel=False
            ),
        }
        made = tool.MatMulNBitsQuantizer(onnx.load(model), block, False, 4, algo_config=configs[method]())
        made.quantize_model()
        onnx.save(made.model.model, result)

    return job


OPSET, IR_VERSION = 21, 10
"""The first whose DequantizeLinear has blocks. ModelOpt writes them at any opset; onnxruntime refuses that."""


def modelopt(method: str) -> Job:
    def job(model: Path, feeds: Feeds, result: Path, block: int) -> None:
        from modelopt.onnx.quantization.int4 import quantize

        raised, given = onnx.load(model), result.with_suffix(".given.onnx")
        for imported in raised.opset_import:
            imported.version = imported.version if imported.domain else OPSET
        raised.ir_version = IR_VERSION
        onnx.save(raised, given)
        made = quantize(
            str(given),
            calibration_method=method,
            calibration_data_reader=Reader(feeds),
            calibration_eps=["cpu"],
            use_zero_point=False,
            block_size=block,
            nodes_to_exclude=["nothing"],
        )
        given.unlink()
        onnx.save(made, result)

    return job


def _with_ranks(model: onnx.ModelProto) -> onnx.ModelProto:
    """With a word on every tensor of features: NNCF knows no edges behind operators that onnx cannot infer."""
    graph = model.graph
    known = {one.name for one in (*graph.value_info, *graph.input, *graph.output)}
    for node in graph.node:
        first = node.output[0]
        if node.op_type in FEATURES and not node.name.startswith("mask") and first not in known:
            axes = ["batch_size", "sequence_length", "features"]
            graph.value_info.append(onnx.helper.make_tensor_value_info(first, onnx.TensorProto.FLOAT, axes))
    return model


def nncf(mode: str, **options: Any) -> Job:
    """NNCF 3.4 puts MatMulNBits in the place of a Gather too, so that tables are left out, and does not pack zero
    points of 4 bits: onnxruntime refuses both (`INT4_ASYM` stays among the jobs to show it)."""

    def job(model: Path, feeds: Feeds, result: Path, block: int) -> None:
        import nncf as tool

        whole = mode.startswith("INT8")
        made = tool.compress_weights(
            _with_ranks(onnx.load(model)),
            mode=tool.CompressWeightsMode[mode],
            group_size=-1 if whole else block,
            all_layers=None if whole else True,
            ratio=None if whole else 1.0,
            ignored_scope=None if whole else tool.IgnoredScope(types=["Gather"]),
            dataset=tool.Dataset(feeds) if options else None,
            **options,
        )
        onnx.save(made, result)

    return job


def onnxsim(method: str) -> Job:
    def job(model: Path, feeds: Feeds, result: Path, block: int) -> None:
        from onnxsim import quark_matmul_nbits as tool

        made, _ = tool.quantize_matmul_nbits(
            onnx.load(model),
            group_size=block,
            symmetric=False,
            bits=4,
            algorithm=method,
            calibration=feeds if method == "GPTQ" else None,
        )
        onnx.save(made, result)

    return job


def onnxsim_fitted(method: str) -> Job:
    """Its int4 in blocks, then a method that changes the weights of that file."""

    def job(model: Path, feeds: Feeds, result: Path, block: int) -> None:
        import onnxsim as tool

        module = __import__(f"onnxsim.{method}", fromlist=[method])
        given = onnx.load(model)
        rounded = tool.quantize_weight_only_int4(given)
        onnx.save(getattr(module, f"apply_{method}")(given, rounded, calibration_data=feeds), result)

    return job


JOBS: dict[str, Job] = {
    "onnxruntime RTN": onnxruntime_nbits("rtn", 4),
    "onnxruntime RTN symmetric": onnxruntime_nbits("rtn", 4, symmetric=True),
    "onnxruntime RTN, accuracy_level=4": onnxruntime_nbits("rtn", 4, level=4),
    "onnxruntime HQQ": onnxruntime_nbits("hqq", 4),
    "onnxruntime k_quant": onnxruntime_nbits("k_quant", 4),
    "onnxruntime GPTQ": onnxruntime_nbits("gptq", 4),
    "onnxruntime RTN 8": onnxruntime_nbits("rtn", 8, symmetric=True),
    "quark RTN": quark("rtn"),
    "quark HQQ": quark("hqq"),
    "quark GPTQ": quark("gptq"),
    "modelopt RTN": modelopt("rtn_dq"),
    "modelopt AWQ lite": modelopt("awq_lite"),
    "modelopt AWQ clip": modelopt("awq_clip"),
    "nncf INT4_ASYM": nncf("INT4_ASYM"),
    "nncf INT4_SYM": nncf("INT4_SYM"),
    "nncf INT4_SYM AWQ": nncf("INT4_SYM", awq=True),
    "nncf INT4_SYM scale estimation": nncf("INT4_SYM", scale_estimation=True),
    "nncf INT4_SYM AWQ, scale estimation": nncf("INT4_SYM", awq=True, scale_estimation=True),
    "nncf INT8_ASYM": nncf("INT8_ASYM"),
    "onnxsim RTN": onnxsim("DEFAULT"),
    "onnxsim HQQ": onnxsim("HQQ"),
    "onnxsim GPTQ": onnxsim("GPTQ"),
    "onnxsim AWQ": onnxsim_fitted("awq"),
    "onnxsim AutoRound": onnxsim_fitted("autoround"),
}
"""Tool and method -> what writes the file; the first word is the tool, whose interpreter runs it."""


def main() -> None:
    job, model, ids, result, block = sys.argv[1:]
    JOBS[job](Path(model), feeds_of(Path(model), Path(ids)), Path(result), int(block))


if __name__ == "__main__":
    main()
