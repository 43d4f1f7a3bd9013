"""What onnxruntime runs to make a tensor, as a value that can be compared: which kernels, on what, in which order.

Two sessions that make a tensor by the same expression of kernels give it the same bits on every processor. Sessions
with other expressions may still agree on one processor, by luck, and differ on the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnxq.runtime.session import Optimize, make_session

LAYOUT_ONLY = ("ReorderInput", "ReorderOutput")
"""Operators that move values into another order in memory and compute nothing."""


def kernel_expressions(
    model: bytes, folder: Path, tensors: Iterable[str], *, optimize: Optimize = "all"
) -> dict[str, str]:
    """Tensor -> a hash of the expression of kernels that makes it, for those that the optimized graph still has."""
    path = folder / "optimized.onnx"
    make_session(model, threads=1, optimize=optimize, optimized_path=path)
    graph = onnx.load(str(path)).graph
    known: dict[str, str] = {"": ""}
    known |= {value.name: f"input {value.name}" for value in graph.input}
    known |= {tensor.name: _content(tensor) for tensor in graph.initializer}
    for node in graph.node:  # onnxruntime writes them sorted
        if node.op_type in LAYOUT_ONLY:
            known[node.output[0]] = known[node.input[0]]
            continue
        attributes = sorted(attribute.SerializeToString(deterministic=True).hex() for attribute in node.attribute)
        made_from = [node.domain, node.op_type, *attributes, *(known[name] for name in node.input)]
        for port, name in enumerate(node.output):
            known[name] = _hashed(*made_from, str(port))
    return {name: known[name] for name in tensors if name in known}


def _content(tensor: onnx.TensorProto) -> str:
    values = np.ascontiguousarray(numpy_helper.to_array(tensor))
    return _hashed(str(values.dtype), str(values.shape), values.tobytes().hex())


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
