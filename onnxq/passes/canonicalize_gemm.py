"""Give every Gemm one form: alpha = beta = 1, A not transposed, and a bias of one value per output channel or none.

    Y = alpha * A' * B' + beta * C    becomes    Gemm(A', alpha * B, beta * C), transB as in the file

transB stays: turning a constant B around would rename and rewrite weights for nothing, since targets take both forms.
A C that is computed, or that has rows ([M, N], [M, 1]), becomes an Add behind the Gemm, because an integer bias is one
number per channel. A Gemm of two computed matrices with alpha must not be rewritten: there is no constant to hold it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.channels import BIAS, WEIGHT, output_axis
from onnxq.passes.rewriter import Declined, Rewriter, cast_back, constant_values, element_type, has_input, known_shape

_BIAS_OPTIONAL_SINCE = 11


@PASSES.register("canonicalize_gemm")
def canonicalize_gemm(graph: Graph) -> PassResult:
    """Rewrite every Gemm; each of alpha, transA, beta and C is handled or declined on its own."""
    return Rewriter(graph).visit("Gemm", _canonicalize)


def _canonicalize(rewriter: Rewriter, node: Node) -> None:
    for step in (_fold_alpha, _untranspose_a, _fold_beta, _shape_bias):
        try:
            done = step(rewriter, node)
        except Declined as reason:
            rewriter.declined(node, reason)
        else:
            if done:
                rewriter.changed(node, done)


def _fold_alpha(rewriter: Rewriter, node: Node) -> str:
    graph, alpha = rewriter.graph, float(node.attrs.get("alpha", 1.0))
    if alpha == 1.0:
        return ""
    port = next((port for port in (WEIGHT, 0) if graph.is_constant(node.inputs[port])), None)
    if port is None:
        raise Declined(f"alpha={alpha:g} stays, neither A nor B is a constant that could hold it")
    values = constant_values(graph, node, port, "operand") * alpha
    remark = rewriter.set_constant(
        node, port, cast_back(values, element_type(graph, node.inputs[port]), "operand"), "weight"
    )
    del node.attrs["alpha"]
    return f"alpha={alpha:g} multiplied into {'B' if port else 'A'}{remark}"


def _untranspose_a(rewriter: Rewriter, node: Node) -> str:
    graph = rewriter.graph
    if not node.attrs.get("transA", 0):
        return ""
    del node.attrs["transA"]
    matrix = node.inputs[0]
    if graph.is_constant(matrix):
        return f"constant A transposed{rewriter.set_constant(node, 0, graph.values(matrix).T.copy(), 'matrix')}"
    shape = graph.shape(matrix)
    turned = graph.add_variable(
        f"{matrix.name}_transposed", graph.dtype(matrix), None if shape is None else shape[::-1]
    )
    scope = graph.scope_of(node)
    graph.add_node("Transpose", [matrix], [turned], attrs={"perm": [1, 0]}, name=f"{node.name}_transpose", scope=scope)
    node.inputs[0] = turned
    return "transA became a Transpose before it"


def _fold_beta(rewriter: Rewriter, node: Node) -> str:
    graph, beta = rewriter.graph, float(node.attrs.get("beta", 1.0))
    if beta == 1.0:
        return ""
    if not has_input(node, BIAS):
        del node.attrs["beta"]
        return f"beta={beta:g} dropped, since there is no C"
    addend = node.inputs[BIAS]
    if beta == 0.0:
        _drop_bias(rewriter, node)
        done = "C dropped, since beta is 0"
    elif graph.is_constant(addend):
        values = constant_values(graph, node, BIAS, "C") * beta
        done = f"beta={beta:g} multiplied into C"
        done += rewriter.set_constant(node, BIAS, cast_back(values, element_type(graph, addend), "bias"), "bias")
    else:
        dtype = _dtype(graph, node)
        factor = graph.add_constant(f"{node.name}_beta", cast_back(np.array(beta), dtype, "factor"))
        scaled = graph.add_variable(f"{addend.name}_scaled", dtype, graph.shape(addend))
        scope = graph.scope_of(node)
        graph.add_node("Mul", [addend, factor], [scaled], name=f"{node.name}_scale", scope=scope)
        node.inputs[BIAS] = scaled
        done = f"beta={beta:g} became a Mul of the computed C"
    del node.attrs["beta"]
    return done


def _shape_bias(rewriter: Rewriter, node: Node) -> str:
    """[N] stays; one row or one value is spread to [N]; rows and computed values are added behind the Gemm."""
    graph = rewriter.graph
    if not has_input(node, BIAS):
        return ""
    addend = node.inputs[BIAS]
    if not graph.is_constant(addend):
        return _split_off(rewriter, node)
    shape = graph.values(addend).shape
    rows = shape[0] if len(shape) == 2 else 1
    if rows > 1:
        return _split_off(rewriter, node)
    channels = _channels(graph, node)
    if channels is None:
        if len(shape) == 1 and shape[0] > 1:
            return ""
        raise Declined(f"C of shape {list(shape)} stays, the number of output channels is not known")
    if shape == (channels,):
        return ""
    if math.prod(shape) != 1 and math.prod(shape) != channels:
        raise Declined(f"C of shape {list(shape)} does not fit {channels} output channels: the model is not valid")
    values = np.broadcast_to(graph.values(addend).reshape(-1), (channels,)).copy()
    return f"C of shape {list(shape)} spread to [{channels}]{rewriter.set_constant(node, BIAS, values, 'bias')}"


def _split_off(rewriter: Rewriter, node: Node) -> str:
    graph = rewriter.graph
    addend, result = node.inputs[BIAS], node.outputs[0]
    kind = "constant" if graph.is_constant(addend) else "computed"
    if kind == "computed" and graph.opset < _BIAS_OPTIONAL_SINCE and _channels(graph, node) is None:
        raise Declined(f"the computed C stays, opset {graph.opset} wants a C and its size is not known")
    product = graph.add_variable(f"{result.name}_product", graph.dtype(result), graph.shape(result))
    node.outputs[0] = product
    scope = graph.scope_of(node)
    graph.add_node("Add", [product, addend], [result], name=f"{node.name}_add", scope=scope)
    _drop_bias(rewriter, node)
    return f"the {kind} C '{addend.name}' is added behind it"


def _drop_bias(rewriter: Rewriter, node: Node) -> None:
    graph = rewriter.graph
    dtype = _dtype(graph, node)
    rewriter.drop_input(node, BIAS)
    if graph.opset < _BIAS_OPTIONAL_SINCE:
        rewriter.set_constant(node, BIAS, np.zeros(_channels(graph, node) or 1, dtype), "bias")


def _channels(graph: Graph, node: Node) -> int | None:
    for tensor, axis in ((node.inputs[WEIGHT], output_axis(node)), (node.outputs[0], 1)):
        shape = known_shape(graph, tensor)
        if shape is not None and len(shape) == 2 and isinstance(shape[axis], int):
            return int(shape[axis])
    return None


def _dtype(graph: Graph, node: Node) -> np.dtype[Any]:
    known = (element_type(graph, tensor) for tensor in [*node.inputs, *node.outputs])
    dtype = next((dtype for dtype in known if dtype is not None), None)
    if dtype is None:
        raise Declined("its element type is not known")
    return dtype
