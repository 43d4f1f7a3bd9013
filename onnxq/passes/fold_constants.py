"""Nodes whose inputs are all known are computed now; so are shapes that are known."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.graph import DeferredValues, Graph, LazyValues, Node, bodies
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.edits import LARGE_BYTES, Folding, held_values, node_line
from onnxq.passes.evaluate import Evaluation

_RANDOM = (
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_SLOW = ("Conv", "ConvTranspose", "GRU", "LSTM", "RNN")
_NEVER = {
    **dict.fromkeys(_RANDOM, "it draws random numbers"),
    **dict.fromkeys(_QUANTIZED, "what is quantized already stays as the file has it"),
    **dict.fromkeys(_SLOW, "it computes too much to be repeated whenever the weights are read"),
}

_SHARED_BYTES = 2**14
_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_ON_THE_WAY = ("Transpose", "Reshape", "Cast", "Identity", "Unsqueeze", "Squeeze", "Flatten")

_GROWTH = 4
_DEPTH = 8


@PASSES.register("fold_constants")
def fold_constants(graph: Graph) -> PassResult:
    """Op(constants) -> initializer, and Shape or Size of a tensor of known shape -> initializer; chains fold at once.

    Not random operators, nodes with bodies, other domains, quantized weights, a result that is an output of the graph,
    a result much larger than what it is computed from (over 4 times the inputs and 1 MB), nor what the reference
    implementation of ONNX cannot compute. Results of 1 MB or more are computed again whenever they are read.
    """
    return fold(graph, for_layers=True)


def fold(graph: Graph, *, for_layers: bool) -> PassResult:
    """The pass; `for_layers` gives a layer a weight of its own that it shares with others by way of a Transpose."""
    result = PassResult()
    while True:
        if _knows_too_little(graph):
            graph.infer_shapes()  # a folded target of Reshape may have made more shapes known since the last round
        before = len(result.changed)
        result.declined.clear()
        _fold_once(graph, result, for_layers)
        if len(result.changed) == before:
            return result


def _knows_too_little(graph: Graph) -> bool:
    """Whether some shape is unknown that is asked for, or some type against which results could be checked."""
    for node in graph.nodes():
        if node.op in ("Shape", "Size") and not node.domain and graph.shape(node.inputs[0]) is None:
            return True
        if any(tensor.name and tensor.dtype is None for tensor in node.outputs):
            return True
    return False


def _fold_once(graph: Graph, result: PassResult, for_layers: bool) -> None:
    graph.sort()
    folding = Folding(graph)
    for node in graph.nodes():
        if node.domain or node.op == "Constant" or not any(tensor.name for tensor in node.inputs) or bodies(node):
            continue
        known_shape = _shape_values(graph, node)
        if known_shape is None and not all(graph.is_constant(tensor) for tensor in node.inputs if tensor.name):
            continue
        try:
            values = [known_shape] if known_shape is not None else _values(graph, node, for_layers)
            _check_outputs(graph, node, values)
        except UnsupportedError as reason:
            result.declined.append(node_line(node, str(reason)))
            continue
        for tensor, value in zip(node.outputs, values, strict=True):
            if tensor.name:
                folding.become_constant(tensor, value, graph.scope_of(node))
        folding.discard(node, "its result is known and became a constant")
        result.changed.append(node_line(node, f"became the constant '{node.outputs[0].name}'"))
    folding.finish()


def _shape_values(graph: Graph, node: Node) -> np.ndarray | None:
    """The result of Shape or Size where the shape is known, even though the values are not."""
    if node.op not in ("Shape", "Size"):
        return None
    shape = graph.shape(node.inputs[0])
    if shape is None or not all(isinstance(size, int) for size in shape):
        return None
    if node.op == "Size":
        return np.array(math.prod(size for size in shape if isinstance(size, int)), dtype=np.int64)
    return np.array(shape[node.attrs.get("start", 0) : node.attrs.get("end")], dtype=np.int64)


def _values(graph: Graph, node: Node, for_layers: bool) -> list[np.ndarray | LazyValues]:
    if node.op in _NEVER:
        raise UnsupportedError(_NEVER[node.op])
    inputs = [held_values(graph, tensor) if tensor.name else None for tensor in node.inputs]
    if node.op == "Identity" and inputs[0] is not None:
        return [inputs[0]]
    _check_copies(graph, node, for_layers)
    evaluation = Evaluation(graph, node, inputs)
    given = [held for held in inputs if held is not None]
    allowed = _GROWTH * sum(held.nbytes for held in given) + LARGE_BYTES
    _check_size(max(evaluation.expected_size() * given[0].dtype.itemsize, _declared_bytes(graph, node)), allowed)
    depth = 1 + max(getattr(held, "depth", 0) for held in given)
    values: list[np.ndarray | LazyValues] = []
    for position, array in enumerate(evaluation.compute()):
        _check_size(array.nbytes, allowed)
        if array.nbytes < LARGE_BYTES or depth > _DEPTH:
            values.append(np.array(array))  # a copy, because views keep whole weights in memory
        else:
            values.append(_Folded(array.shape, array.dtype, partial(_output, evaluation, position), depth))
    return values


def _declared_bytes(graph: Graph, node: Node) -> int:
    """Bytes of the results as far as their shapes are known without computing them."""
    total = 0
    for tensor in node.outputs:
        shape, dtype = graph.shape(tensor), graph.dtype(tensor)
        sizes = [size for size in shape or () if isinstance(size, int)]
        if tensor.name and shape is not None and dtype is not None and len(sizes) == len(shape):
            total += math.prod(sizes) * dtype.itemsize
    return total


def _check_copies(graph: Graph, node: Node, for_layers: bool) -> None:
    """A large weight that others read too stays one: folding what moves it would store it twice.

    Layers are the exception for most targets, which quantize them only with a weight of their own.
    """
    shared = [tensor for tensor in node.inputs if tensor.name and len(tensor.outputs) > 1]
    shared = [tensor for tensor in shared if held_values(graph, tensor).nbytes > _SHARED_BYTES]
    readers = [reader.op for tensor in node.outputs for reader in tensor.outputs] if shared else []
    if shared and not (for_layers and any(op in _LAYERS or op in _ON_THE_WAY for op in readers)):
        raise UnsupportedError(f"'{shared[0].name}' is large and read by others too: folding would store it twice")


class _Folded(DeferredValues):
    """A large result; `depth` counts how many folded nodes are computed one after the other to read it."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], compute: Any, depth: int) -> None:
        super().__init__(shape, dtype, compute)
        self.depth = depth


def _output(evaluation: Evaluation, position: int) -> np.ndarray:
    return evaluation.compute()[position]


def _check_size(size: int, allowed: int) -> None:
    if size > allowed:
        raise UnsupportedError(f"its result takes {size:,} bytes, more than {allowed:,} would allow for its inputs")


def _check_outputs(graph: Graph, node: Node, values: list[np.ndarray | LazyValues]) -> None:
    for tensor, value in zip(node.outputs, values, strict=True):
        if not tensor.name:
            continue
        if graph.is_output(tensor):
            raise UnsupportedError(f"its result '{tensor.name}' is an output of the graph")
        dtype, shape = graph.dtype(tensor), graph.shape(tensor)
        if dtype is not None and dtype != value.dtype:
            raise UnsupportedError(f"its result came out as {value.dtype}, but '{tensor.name}' is declared as {dtype}")
        if shape is not None and not _fits(shape, value.shape):
            raise UnsupportedError(
                f"its result has the shape {value.shape}, but '{tensor.name}' is declared as {shape}"
            )


def _fits(declared: tuple[int | str | None, ...], shape: tuple[int, ...]) -> bool:
    same_rank = len(declared) == len(shape)
    return same_rank and all(not isinstance(d, int) or d == s for d, s in zip(declared, shape, strict=True))
