"""What TensorRT's ONNX parser refuses or reads otherwise than it stands, beyond the limits that other targets have too.

A scale in blocks has the rank of its tensor, divides exactly one axis of it and leaves no rest. Numbers of 4 bits are
packed in pairs. NVFP4 has blocks of 16, MXFP8 blocks of 32; their scales are E4M3 and E8M0. Of QuantizeLinear's own
precision TensorRT takes no notice. A strongly typed network, the only kind that TensorRT 11 has, converts nothing by
itself: inputs of an operator that have one type in ONNX have it in the file. Source: onnx-tensorrt
(QuantDequantLinearHelper, TRT_FP4DynamicQuantize, TRT_MXFP8DynamicQuantize).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx
from onnx import defs

from onnxq.graph import Graph, Node
from onnxq.lint.finding import Finding
from onnxq.lint.quantizers import Quantizer, element_name
from onnxq.lint.rules import LINTS
from onnxq.types import Backend

_FOUR_BITS = {element_name(name) for name in ("int4", "float4_e2m1fn")}
_HALF_AND_WIDER = ("float32", "float16", "bfloat16")
_SIZES = {("float4_e2m1fn", "float8_e4m3fn"): 16, ("float8_e4m3fn", "float8_e8m0fnu"): 32}
"""Type of the numbers and of their scales -> the size of the blocks."""
_DYNAMIC = {"TRT_FP4DynamicQuantize": 16, "TRT_MXFP8DynamicQuantize": 32, "TRT_MXFP8DequantizeLinear": 32}


@LINTS.register("tensorrt_parser")
def lint_parser(graph: Graph, found: list[Quantizer], backend: Backend) -> Iterator[Finding]:
    """Blocks, packing and types as TensorRT's parser has them."""
    for quantizer in found:
        node = graph.node(quantizer.node)
        yield from _blocks(graph, node, quantizer)
        yield from _packing(graph, node, quantizer)
        yield from _types(graph, node, quantizer)
    for node in graph.nodes():
        size = _DYNAMIC.get(node.op)
        if size is not None and int(node.attrs.get("block_size", size)) != size:
            text = f"has blocks of {node.attrs['block_size']}, TensorRT has blocks of {size}"
            yield _of_node(node, "block-size", text, f"Use blocks of {size}")


@LINTS.register("strongly_typed")
def lint_types(graph: Graph, found: list[Quantizer], backend: Backend) -> Iterator[Finding]:
    """Inputs that ONNX gives one type have it; nothing is converted without a Cast."""
    graph = graph.copy()
    graph.infer_shapes()  # files of others need not declare the types of what is computed
    for node in graph.nodes():
        for ports in _same_types(node.op, graph.opset) if not node.domain else ():
            present = [node.inputs[port] for port in range(len(node.inputs)) if min(port, ports[-1]) in ports]
            kinds = {str(graph.dtype(tensor)) for tensor in present if tensor.name and _is_float(graph, tensor)}
            if len(kinds) > 1:
                text = f"reads {' and '.join(sorted(kinds))}, which a strongly typed network does not convert"
                yield _of_node(node, "mixed-types", text, "Put a Cast in front of one of its inputs")


def _blocks(graph: Graph, node: Node, quantizer: Quantizer) -> Iterator[Finding]:
    shape, scale = graph.shape(quantizer.data_name), quantizer.scale
    if scale is None or scale.size == 1 or scale.ndim == 1 or shape is None:
        return
    if scale.ndim != len(shape):
        yield quantizer.finding(
            "scale-rank",
            f"has {len(shape)} axes and scales with {scale.ndim}",
            "Give one scale, one for each channel, or one for each block along one axis",
        )
        return
    pairs = [(whole, part) for whole, part in zip(shape, scale.shape, strict=True) if whole != part]
    if len(pairs) > 1:
        yield quantizer.finding("one-blocked-axis", "has blocks along several axes", "Use blocks along one axis")
    for whole, part in pairs:
        if isinstance(whole, int) and whole % part:
            yield quantizer.finding(
                "whole-blocks",
                f"has {whole} numbers along its blocked axis for {part} scales, the last block is shorter",
                "Use a block size that divides the axis, or a scale for each channel",
            )
    codes = graph.dtype(quantizer.data_name)
    stored = graph.dtype(quantizer.scale_name)
    maker = graph.producer(quantizer.scale_name)
    while maker is not None and maker.op in ("Cast", "DequantizeLinear"):
        stored = graph.dtype(maker.inputs[0])
        maker = graph.producer(maker.inputs[0])
    size = _SIZES.get(("" if codes is None else codes.name, "" if stored is None else stored.name))
    written = int(node.attrs.get("block_size", 0))
    if size is not None and written and written != size:
        text = f"has blocks of {written}, TensorRT has blocks of {size} for these types"
        yield quantizer.finding("block-size", text, f"Use blocks of {size}")


def _packing(graph: Graph, node: Node, quantizer: Quantizer) -> Iterator[Finding]:
    shape = graph.shape(quantizer.data_name)
    if quantizer.dtype not in _FOUR_BITS or shape is None or not all(isinstance(length, int) for length in shape):
        return
    if math.prod(int(length or 0) for length in shape) % 2:
        yield quantizer.finding(
            "even-count", f"holds an odd number of {quantizer.dtype}, which are packed in pairs", "Use int8 for it"
        )


def _types(graph: Graph, node: Node, quantizer: Quantizer) -> Iterator[Finding]:
    precision, scale = int(node.attrs.get("precision", 0)), graph.dtype(quantizer.scale_name)
    if precision and scale is not None and np.dtype(onnx.helper.tensor_dtype_to_np_dtype(precision)) != scale:
        yield quantizer.finding(
            "precision",
            f"is to be divided in {onnx.TensorProto.DataType.Name(precision)}, TensorRT divides in the scale's {scale}",
            "Leave the attribute `precision` out, or give the scale that type",
        )
    made = graph.dtype(quantizer.output_name) if quantizer.op == "DequantizeLinear" else None
    if made is not None and made.name not in (*_HALF_AND_WIDER, "float8_e4m3fn"):
        yield quantizer.finding("output-type", f"is dequantized to {made.name}", "Use float32, float16 or bfloat16")


def _is_float(graph: Graph, tensor: object) -> bool:
    kind = graph.dtype(tensor)
    return kind is not None and kind.name in _HALF_AND_WIDER


@cache
def _same_types(op: str, opset: int) -> tuple[tuple[int, ...], ...]:
    """Groups of input ports that have one type; further inputs of a variadic operator belong to the last port."""
    try:
        schema = defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return ()
    groups: dict[str, list[int]] = {}
    for port, parameter in enumerate(schema.inputs):
        if parameter.is_homogeneous:
            groups.setdefault(parameter.type_str, []).append(port)
    return tuple(tuple(ports) for ports in groups.values())


def _of_node(node: Node, rule: str, text: str, remedy: str) -> Finding:
    tensor = str(node.outputs[0].name)
    return Finding(rule, tensor, str(node.name), f"tensor '{tensor}' (node '{node.name}', {node.op}) {text}", remedy)
