"""The quantized model with the types that ONNX has for numbers in blocks: what compilers read, onnxruntime may not run.

    weight   FLOAT4E2M1, FLOAT8E4M3FN ... -> DequantizeLinear in blocks, scales FLOAT8E8M0 (opset 24)
    nvfp4    FLOAT4E2M1 -> DequantizeLinear in blocks, scales DequantizeLinear(FLOAT8E4M3FN, float) (opset 23)

Everything else is as in the model that onnxruntime runs. The file is read back without onnxruntime: every such weight
is computed from the codes and scales in the file, and has to be what `onnxq.numerics` says, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.block_constants import write_block_constant
from onnxq.emit.qdq import QdqWriter, check_names, required_opset
from onnxq.graph import Graph, collector_paused
from onnxq.half import to_half
from onnxq.numerics import fake_quantize
from onnxq.types import Backend, Placement, QParams, QParamsTable, QuantPlan

OWN_TYPES_SUFFIX = "_onnx_types.onnx"

RunTimeQuantizer = Callable[[Graph, Placement, QParams], bool]
"""Writes the quantizer of a tensor that is computed at run time, or says that it does not know its format."""


def to_own_types(
    graph: Graph,
    plan: QuantPlan,
    qparams: QParamsTable,
    backend: Backend,
    at_run_time: RunTimeQuantizer | None = None,
) -> tuple[Graph, list[str]]:
    """A new graph with ONNX's own types, and a line for each thing that had to change on the way."""
    check_names(graph, plan, qparams)
    result = graph.copy()
    result.keep_given_names()
    held = [placement.spec.format.at_rest for placement in plan]
    own = (rest.own_opset for rest in held if rest is not None and rest.own_type is not None)
    notes = result.raise_opset(max(backend.limits.min_opset, required_opset(graph, plan), *own))
    writer = QdqWriter(result, plan, qparams, backend)
    with collector_paused():
        for placement in plan:
            parameters = qparams[placement.tensor]
            if placement.edges == ():
                continue
            if result.is_constant(placement.tensor):
                codes = write_block_constant(result, placement, parameters, own_types=True)
                if codes is not None:
                    result.origins.tensor_became(placement.tensor, codes.name)
                    continue
            elif at_run_time is not None and at_run_time(result, placement, parameters):
                continue
            writer.write(placement, plan.leader(placement.tensor))
        result.remove(writer.absorbed)
        result.remove_unused_constants()
    if plan.rest is not None:
        to_half(result, plan.rest, qparams.entries)
    return result, notes


def write_own_types(request: EmitRequest) -> Emitted:
    """Write `<name>_onnx_types.onnx`: MX and NVFP4 weights in ONNX's own types, for compilers."""
    result, _ = to_own_types(*request.quantized, request.backend)
    return Emitted(tuple(result.save(request.path(OWN_TYPES_SUFFIX))))


def read_back(request: EmitRequest) -> Iterator[str]:
    """A line for every weight whose codes and scales in the file are not the numbers of its parameters."""
    yield from differing_weights(request, request.path(OWN_TYPES_SUFFIX))


def differing_weights(request: EmitRequest, path: Path) -> Iterator[str]:
    """The same for a file of another emitter that has codes and scales like these."""
    read = _Reader(onnx.load(str(path)))
    for placement in request.plan:
        rest = placement.spec.format.at_rest
        name = placement.tensor
        if rest is None or rest.own_type is None or placement.edges == () or not request.graph.is_constant(name):
            continue
        wanted = fake_quantize(request.graph.values(name).astype(np.float32), request.qparams[name])
        found = read.weight(name)
        if found is None:
            yield f"weight '{name}' has no codes of its own type in {path.name}"
        elif found.shape != wanted.shape or not np.array_equal(found.view(np.int32), wanted.view(np.int32)):
            yield f"weight '{name}' has other values in {path.name} than its parameters say"


class _Reader:
    """Weights of a file, computed from its nodes and initializers in numpy."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._nodes = {node.output[0]: node for node in _nodes(model.graph)}
        self._constants = {item.name: item for graph in _graphs(model.graph) for item in graph.initializer}

    def weight(self, name: str) -> np.ndarray | None:
        """The float32 values behind the codes of a weight, which are called after it."""
        for node in self._nodes.values():
            if node.op_type.endswith("DequantizeLinear") and node.input[0].startswith(f"{name}_codes"):
                return self._dequantized(node)
        return None

    def _dequantized(self, node: onnx.NodeProto) -> np.ndarray:
        attrs = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        codes, scale = self._values(node.input[0]), self._values(node.input[1])
        size = int(attrs.get("block_size", 0))
        if size:
            axis = int(attrs["axis"]) % codes.ndim
            scale = np.repeat(scale, size, axis).take(np.arange(codes.shape[axis]), axis)
        return np.asarray(codes * scale, np.float32)

    def _values(self, name: str) -> np.ndarray:
        if name in self._constants:
            stored = numpy_helper.to_array(self._constants[name])
            return exponents(stored) if stored.dtype == np.uint8 else stored.astype(np.float32)
        return self._dequantized(self._nodes[name])


def exponents(stored: np.ndarray) -> np.ndarray:
    """Powers of two from exponents biased by 127, as TensorRT has E8M0 scales."""
    return np.asarray(np.ldexp(np.float32(1), stored.astype(np.int32) - 127))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for item in node.attribute:
            bodies = [item.g] if item.HasField("g") else list(item.graphs)
            for body in bodies:
                yield from _graphs(body)


def _nodes(graph: onnx.GraphProto) -> Iterator[Any]:
    for each in _graphs(graph):
        yield from each.node


EMITTERS.add("own_types", Emitter(write_own_types, files=(OWN_TYPES_SUFFIX,), read_back=read_back))
