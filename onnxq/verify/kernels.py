"""Which kernels onnxruntime runs a quantized model with on this machine."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxq.runtime.session import make_session, optimized_session, run_session
from onnxq.temporary import temporary_folder

if TYPE_CHECKING:
    import onnxruntime as ort

_INTEGER_OPS = (
    *("QGemm", "QAttention", "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat"),
    *("DynamicQuantizeMatMul", "DynamicQuantizeLSTM"),
)
QUANTIZERS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
FLOAT_LAYERS = ("Conv", "ConvTranspose", "FusedConv", "MatMul", "FusedMatMul", "Gemm", "FusedGemm")
"""Kernels of convolutions and matrix products in float."""
_MOVED = re.compile(r"(_token_\d+|_nchwc|_nhwc)+$")


@dataclass(frozen=True)
class KernelCount:
    """Operator -> how many of them are left after onnxruntime's optimizer.

    integer    kernels that compute in integers: QLinearConv, QLinearMatMul, QGemm, MatMulIntegerToFloat ...
    floating   convolutions and matrix products that still compute in float
    quantizers QuantizeLinear and DequantizeLinear nodes that were not absorbed by an integer kernel
    converted  node -> operator, for nodes that compute in float what is converted from integers or to integers for them
    """

    integer: dict[str, int] = field(default_factory=dict)
    floating: dict[str, int] = field(default_factory=dict)
    quantizers: dict[str, int] = field(default_factory=dict)
    converted: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, dict[str, int]]:
        return {"integer": self.integer, "float": self.floating, "quantizers": self.quantizers}


def fused_session(model_path: Path | str, *, threads: int | None = None) -> tuple[ort.InferenceSession, KernelCount]:
    """A session as anybody would make it, and what onnxruntime's optimizer made of the model for this machine."""
    with temporary_folder() as folder:
        session, optimized = optimized_session(
            Path(model_path), folder, threads=threads, what=f"{model_path} with its optimizer"
        )
    return session, count_kernels(optimized.graph)


def count_kernels(optimized: onnx.GraphProto) -> KernelCount:
    """The kernels of a graph as onnxruntime has optimized it."""
    counts = _count(optimized)
    return KernelCount(
        integer={op: n for op, n in counts.items() if computes_in_integers(op)},
        floating={op: counts[op] for op in FLOAT_LAYERS if counts[op]},
        quantizers={op: counts[op] for op in ("QuantizeLinear", "DequantizeLinear") if counts[op]},
        converted=_converted(optimized),
    )


def computes_in_integers(op: str) -> bool:
    """Whether a kernel of onnxruntime does."""
    return op.startswith("QLinear") or op in _INTEGER_OPS


def integer_kernels(model_path: Path | str) -> KernelCount:
    """Let onnxruntime optimize a model as it does for running on this machine, and count what it made of it."""
    return fused_session(model_path)[1]


@cache
def sums_are_exact() -> bool:
    """Whether onnxruntime's sums of 8-bit products are exact on this machine, tried on the largest products.

    They are on processors that add products in 32 bits (VNNI, AMX, Arm). Kernels differ in how many rows they take at a
    time, and in the sign of what is multiplied with weights.
    """
    return all(_is_exact(rows, kind) for kind in (np.uint8, np.int8) for rows in (1, 7))


def _is_exact(rows: int, kind: type[np.uint8 | np.int8]) -> bool:
    largest = int(np.iinfo(kind).max)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    inputs = [helper.make_tensor_value_info("x", element, [rows, 64])]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [rows, 16])]
    weight = numpy_helper.from_array(np.full((64, 16), 127, np.int8), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "probe", inputs, outputs, [weight]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = make_session(model.SerializeToString(), threads=1)
    (product,) = run_session(session, None, {"x": np.full((rows, 64), largest, kind)}, "a probe")
    return bool(np.all(product == 64 * largest * 127))


def _converted(graph: onnx.GraphProto) -> dict[str, str]:
    """The float nodes of the main graph beside a quantizer that was not absorbed, under the names that the file has."""
    constants = {tensor.name for tensor in graph.initializer}
    dequantized = {
        node.output[0] for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] not in constants
    }
    quantized = {node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"}
    return {
        given_name(node.name): node.op_type
        for node in graph.node
        if node.name
        and node.op_type not in QUANTIZERS
        and (not dequantized.isdisjoint(node.input) or not quantized.isdisjoint(node.output))
    }


def given_name(name: str) -> str:
    """The name that a node of the optimized graph had before onnxruntime moved it into another layout."""
    return _MOVED.sub("", name)


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
