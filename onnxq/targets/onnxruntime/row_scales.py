"""Rows with a scale of their own in front of a product: one token with large values costs the others nothing.

    x W = m (x / m) W        m = max |x| of each row, [..., 1]

DynamicQuantizeLinear finds one range for a whole tensor. In a transformer a few tokens have activations a hundred times
as large as those of all others, and leave these a handful of steps. Divided by their own largest value, all rows use
the same 256 steps, and the product is multiplied back. That takes two passes over what is read and one over what is
made. A norm has made the rows of its result equally large, and a single row has one range anyway: there it is left
out, as where there is a row for each sample of a batch. Tokens are quantized so in LLM.int8() (Dettmers et al. 2022)
and ZeroQuant (Yao et al. 2022).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.graph import Graph, Node

SMALLEST = 1e-30
"""A row of zeros is divided by this."""

NORMS = frozenset(
    ("LayerNorm", "LayerNormalization", "LpNormalization", "RMSNorm", "RMSNormalization")
    + ("SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
)
"""Operators, and units of small ones, whose rows are equally large."""

_PASSED = frozenset(("Add", "Cast", "Flatten", "Identity", "Mul", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
"""What moves the rows of a norm, or does the same to each: a sum or a product counts with a constant alone."""

_AXES_ARE_READ = 18
"""Opset from which reductions read their axes."""


def has_unlike_rows(graph: Graph, node: Node) -> bool:
    """Whether a MatMul or Gemm reads rows that may have unlike sizes."""
    if node.op not in ("MatMul", "Gemm") or node.attrs.get("transA", 0):
        return False
    shape = graph.shape(node.inputs[0])
    if shape is not None and (all(size == 1 for size in shape[:-1]) or _has_a_row_for_each_sample(graph, shape)):
        return False
    return not _is_normalized(graph, node.inputs[0])


def _has_a_row_for_each_sample(graph: Graph, shape: tuple[int | str | None, ...]) -> bool:
    """Whether there are as many rows as samples in a batch of any size, as in front of a classifier: mostly one."""
    batches = {(graph.shape(name) or (None,))[0] for name in graph.input_names if graph.shape(name)}
    return len(shape) == 2 and isinstance(shape[0], str) and shape[0] in batches


def _is_normalized(graph: Graph, tensor: Any) -> bool:
    node = graph.producer(tensor)
    while node is not None:
        unit = graph.units.of(node.name)
        if (node.op if unit is None else unit.kind) in NORMS:
            return True
        computed = [read for read in node.inputs if read.name and not graph.is_constant(read)]
        if node.op not in _PASSED or node.domain or not computed:
            return False
        if node.op in ("Add", "Mul") and len(computed) > 1:
            return False
        node = graph.producer(computed[0])
    return False


def divided_by_rows(graph: Graph, tensor: Any, scope: Any) -> tuple[Any, Any]:
    """Nodes that divide each row by its largest value: the result, and these values."""

    def made(op: str, reads: list[Any], what: str, shape: Any, **attrs: Any) -> Any:
        name = f"{tensor.name}_{what}"
        result = graph.add_variable(name, np.dtype(np.float32), shape)
        graph.add_node(op, reads, [result], attrs=attrs, name=name, scope=scope)
        return result

    shape = graph.shape(tensor)
    rows = None if shape is None else [*shape[:-1], 1]
    sizes = made("Abs", [tensor], "sizes", shape)
    if graph.opset >= _AXES_ARE_READ:
        axes = graph.add_constant(f"{tensor.name}_axes", np.array([-1], np.int64), scope=scope)
        largest = made("ReduceMax", [sizes, axes], "largest", rows, keepdims=1)
    else:
        largest = made("ReduceMax", [sizes], "largest", rows, axes=[-1], keepdims=1)
    least = graph.add_constant(f"{tensor.name}_least", np.array(SMALLEST, np.float32), scope=scope)
    factors = made("Max", [largest, least], "row_factors", rows)
    return made("Div", [tensor, factors], "rows", shape), factors
