"""Which kernels onnxruntime runs a quantized model with, and whether this machine's integer kernels are exact."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import onnx

from onnxq.numerics import SqnrAccumulator
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import make_session, run_session

_REAL_TYPES = ("tensor(float)", "tensor(float16)", "tensor(double)")
_INTEGER_OPS = ("QGemm", "QAttention", "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
_FLOAT_OPS = ("Conv", "ConvTranspose", "FusedConv", "MatMul", "FusedMatMul", "Gemm", "FusedGemm")


@dataclass(frozen=True)
class KernelCount:
    """Operator -> how many of them are left after onnxruntime's optimizer.

    integer    kernels that compute in integers: QLinearConv, QLinearMatMul, QGemm, MatMulIntegerToFloat ...
    floating   convolutions and matrix products that still compute in float
    quantizers QuantizeLinear and DequantizeLinear nodes that were not absorbed by an integer kernel
    """

    integer: dict[str, int] = field(default_factory=dict)
    floating: dict[str, int] = field(default_factory=dict)
    quantizers: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, dict[str, int]]:
        return {"integer": self.integer, "float": self.floating, "quantizers": self.quantizers}


def integer_kernels(model_path: Path | str) -> KernelCount:
    """Let onnxruntime optimize a model as it does for running on this machine, and count what it made of it."""
    with tempfile.TemporaryDirectory(prefix="onnxq-") as folder:
        path = Path(folder) / "optimized.onnx"
        # Large weights beside the model: one protobuf could not hold more than 2 GB.
        config = {
            "session.optimized_model_external_initializers_file_name": "optimized.data",
            "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
        }
        make_session(Path(model_path), optimized_path=path, config=config, what=str(model_path))
        counts = _count(onnx.load(str(path), load_external_data=False).graph)
    integer = {op: n for op, n in counts.items() if op.startswith("QLinear") or op in _INTEGER_OPS}
    return KernelCount(
        integer=integer,
        floating={op: counts[op] for op in _FLOAT_OPS if counts[op]},
        quantizers={op: counts[op] for op in ("QuantizeLinear", "DequantizeLinear") if counts[op]},
    )


def kernel_exactness(model_path: Path | str, dataset: Iterable[Feed], samples: int = 2) -> float:
    """SQNR in dB between this machine's integer kernels and the file's own meaning, the worst over all float outputs.

    The meaning is what the Q/DQ nodes compute one by one, without onnxruntime's optimizer. inf means that both agree; a
    low value that the processor saturates: x86 without VNNI adds pairs of uint8 * int8 products in 16 bits.
    """
    path = Path(model_path)
    usual, exact = make_session(path), make_session(path, optimize="none")
    names = [output.name for output in usual.get_outputs() if output.type in _REAL_TYPES]
    sums = {name: SqnrAccumulator() for name in names}
    for number, feed in enumerate(islice(dataset, samples) if names else ()):
        where = f"sample {number}"
        right, measured = (run_session(session, names, feed, where) for session in (exact, usual))
        for name, one, other in zip(names, right, measured, strict=True):
            if one.shape == other.shape:
                sums[name].add(one, other)
    return min((total.value for total in sums.values()), default=float("inf"))


def _count(graph: onnx.GraphProto) -> Counter[str]:
    counts: Counter[str] = Counter()
    pending = [graph]
    while pending:
        current = pending.pop()
        for node in current.node:
            counts[node.op_type] += 1
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(attribute.g)
                pending.extend(attribute.graphs)
    return counts
