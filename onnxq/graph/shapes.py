"""Shapes and element types of all tensors, without touching the weights."""

from __future__ import annotations

import onnx
import onnx_graphsurgeon as gs
from onnx import shape_inference

from onnxq.graph.nodes import bodies
from onnxq.graph.read import variable
from onnxq.graph.write import skeleton

# Operators whose first output has the element type of this input: the fallback where inference stops at a custom
# operator and everything behind it would be unknown.
_TYPE_OF_INPUT = {"Where": 1, "ConstantOfShape": None, "Shape": None, "Size": None, "Cast": None, "NonZero": None}
_BOOLEAN = {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Not", "And", "Or", "Xor", "IsNaN", "IsInf"}
_INDEX = {"ArgMax", "ArgMin", "Shape", "Size", "NonZero"}


def infer_shapes(header: onnx.ModelProto, graph: gs.Graph) -> None:
    """Fill in dtype and shape where they are unknown; what the user declared stays as it is."""
    inferred = shape_inference.infer_shapes(skeleton(header, graph), check_type=False, strict_mode=False, data_prop=True)
    _take_over(inferred.graph, graph)
    _propagate_types(graph)


def _take_over(proto: onnx.GraphProto, graph: gs.Graph) -> None:
    found = {info.name: info for info in [*proto.value_info, *proto.output]}
    for node, node_proto in zip(graph.nodes, proto.node, strict=True):
        for tensor in node.outputs:
            info = found.get(tensor.name)
            if info is not None and isinstance(tensor, gs.Variable) and info.type.WhichOneof("value") == "tensor_type":
                told = variable(info)
                if tensor.dtype is None:
                    tensor.dtype = told.dtype
                if tensor.shape is None:
                    tensor.shape = told.shape
        inner = [a.g for a in node_proto.attribute if a.type == onnx.AttributeProto.GRAPH]
        inner += [g for a in node_proto.attribute if a.type == onnx.AttributeProto.GRAPHS for g in a.graphs]
        for body, body_proto in zip(bodies(node), inner, strict=True):
            _take_over(body_proto, body)


def _propagate_types(graph: gs.Graph) -> None:
    import numpy as np

    for node in graph.nodes:
        for body in bodies(node):
            _propagate_types(body)
        if node.domain or not node.outputs or getattr(node.outputs[0], "dtype", None) is not None:
            continue
        output = node.outputs[0]
        if not isinstance(output, gs.Variable) or output.type != "tensor_type":
            continue
        if node.op in _BOOLEAN:
            output.dtype = np.dtype(bool)
        elif node.op in _INDEX:
            output.dtype = np.dtype(np.int64)
        else:
            port = _TYPE_OF_INPUT.get(node.op, 0)
            if port is not None and port < len(node.inputs):
                known = [t.dtype for t in node.inputs[port:] if t.name and t.dtype is not None]
                output.dtype = known[0] if known else None
