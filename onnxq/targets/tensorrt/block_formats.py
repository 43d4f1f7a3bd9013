"""MXFP8 and NVFP4 as TensorRT's parser has them: operators of the domain `trt` find the scales of blocks in each run.

    x -> TRT_MXFP8DynamicQuantize -> (FLOAT8E4M3FN, E8M0 as uint8) -> TRT_MXFP8DequantizeLinear -> reader
    x -> TRT_FP4DynamicQuantize(calibrated scale) -> (FLOAT4E2M1, FLOAT8E4M3FN)
         scales -> DequantizeLinear(calibrated scale), numbers -> DequantizeLinear in blocks of 16 -> reader

Weights are stored as numbers and scales of these types behind the same DequantizeLinear. onnxruntime has none of these
operators: `model.onnx` computes the same numbers with float operators, and is what is checked. Sources: onnx-tensorrt
(onnxOpImporters.cpp); NVIDIA's Model-Optimizer writes the same nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.own_types import differing_weights, to_own_types
from onnxq.emit.uses import uses_of
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.types import PerBlock, Placement, QParams
from onnxq.types.attributes import AttributeValues
from onnxq.types.granularity import resolve_axis

DOMAIN = "trt"
SUFFIX = "_tensorrt.onnx"
_E8M0, _E4M3 = np.dtype(ml_dtypes.float8_e8m0fnu), np.dtype(ml_dtypes.float8_e4m3fn)
_E2M1, _FLOAT = np.dtype(ml_dtypes.float4_e2m1fn), np.dtype(np.float32)


def write_dynamic(graph: Graph, placement: Placement, parameters: QParams) -> bool:
    """The quantizer of a tensor whose blocks find their scales at run time; False for other tensors."""
    spec, held, blocks = parameters.spec, parameters.spec.format.at_rest, parameters.spec.granularity
    if not spec.dynamic or held is None or not isinstance(blocks, PerBlock):
        return False
    source = graph.tensor(placement.tensor)
    if source.shape is None:
        raise UnsupportedError(f"tensor '{placement.tensor}' has an unknown rank, so that its blocks have no axis")
    uses = uses_of(graph, placement)
    readers = graph.consumers(source) if uses is None else uses
    attrs: AttributeValues = {"axis": resolve_axis(blocks.axis, len(source.shape)), "block_size": blocks.size}
    writer = _Writer(graph, source)
    made = writer.nvfp4(float(parameters.scale), attrs) if held.two_level else writer.mxfp8(attrs)
    graph.redirect(source, made, uses=readers)
    if placement.edges is None:
        graph.take_over_outputs(source, made)
    return True


class _Writer:
    """The nodes behind one tensor, in the scope that makes it."""

    def __init__(self, graph: Graph, source: Any) -> None:
        self._graph, self._source, self._scope = graph, source, graph.home_of(source)

    def mxfp8(self, attrs: AttributeValues) -> Any:
        numbers, scales = self._variable("numbers", _E4M3, True), self._variable("scales", np.dtype(np.uint8), False)
        made = self._variable("TRT_MXFP8DequantizeLinear", _FLOAT, True)
        told: AttributeValues = {**attrs, "output_dtype": int(TensorProto.FLOAT8E4M3FN)}
        self._add("TRT_MXFP8DynamicQuantize", [self._source], [numbers, scales], told, DOMAIN)
        told = {**attrs, "output_dtype": int(TensorProto.FLOAT)}
        self._add("TRT_MXFP8DequantizeLinear", [numbers, scales], [made], told, DOMAIN)
        return made

    def nvfp4(self, scale: float, attrs: AttributeValues) -> Any:
        values = np.asarray(scale, np.float32)
        common = self._graph.add_constant(f"{self._source.name}_scale", values, scope=self._scope)
        numbers, scales = self._variable("numbers", _E2M1, True), self._variable("scales", _E4M3, False)
        wide, made = self._variable("block_scales", _FLOAT, False), self._variable("DequantizeLinear", _FLOAT, True)
        told: AttributeValues = {**attrs, "scale_type": int(TensorProto.FLOAT8E4M3FN)}
        self._add("TRT_FP4DynamicQuantize", [self._source, common], [numbers, scales], told, DOMAIN)
        self._add("DequantizeLinear", [scales, common], [wide], {}, "")
        self._add("DequantizeLinear", [numbers, wide], [made], attrs, "")
        return made

    def _variable(self, what: str, kind: np.dtype[Any], shaped: bool) -> Any:
        return self._graph.add_variable(f"{self._source.name}_{what}", kind, self._source.shape if shaped else None)

    def _add(self, op: str, inputs: list[Any], made: list[Any], attrs: AttributeValues, domain: str) -> None:
        name = made[0].name
        self._graph.add_node(op, inputs, made, attrs=attrs, name=name, domain=domain, scope=self._scope)


def to_tensorrt(request: EmitRequest) -> tuple[Graph, list[str]]:
    """The model with TensorRT's operators, and a line for each thing that had to change on the way."""
    result, notes = to_own_types(*request.quantized, request.backend, write_dynamic)
    for node in result.nodes("DequantizeLinear"):
        scale = node.inputs[1]
        if result.dtype(scale) == _E8M0 and result.is_constant(scale):
            stored = result.values(scale).view(np.uint8)
            node.inputs[1] = result.add_constant(f"{scale.name}_e8m0", stored, scope=result.home_of(scale))
            node.op, node.domain = "TRT_MXFP8DequantizeLinear", DOMAIN
            node.attrs["output_dtype"] = int(TensorProto.FLOAT)
    result.remove_unused_constants()
    return result, notes


def write_tensorrt(request: EmitRequest) -> Emitted:
    """Write `<name>_tensorrt.onnx`: MXFP8 or NVFP4 with the operators of TensorRT's parser."""
    result, _ = to_tensorrt(request)
    return Emitted(tuple(result.save(request.path(SUFFIX))))


def check_tensorrt(request: EmitRequest) -> Iterator[str]:
    """Weights of the file that are not what the parameters say."""
    yield from differing_weights(request, request.path(SUFFIX))


EMITTERS.add("tensorrt_blocks", Emitter(write_tensorrt, files=(SUFFIX,), read_back=check_tensorrt))
