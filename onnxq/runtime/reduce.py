"""Minimum and maximum of tensors taken inside the graph, so that three numbers leave it instead of an activation.

onnxruntime's ReduceMin and ReduceMax pass over NaN. The sum does not: it is NaN or infinite whenever a value is, so a
range is only trusted beside a finite sum. (A sum may overflow without a bad value; such tensors are looked at in full.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from onnxq.graph import Graph
from onnxq.runtime.feeds import Feed

SMALLEST = 1 << 14
"""Below this many values returning the tensor costs less than three more nodes."""

_OPERATORS = ("ReduceMin", "ReduceMax", "ReduceSum")


@dataclass(frozen=True)
class Reduction:
    """The outputs that hold minimum, maximum, sum and size of a tensor."""

    tensor: str
    outputs: tuple[str, str, str, str]

    def nodes(self) -> list[onnx.NodeProto]:
        minimum, maximum, total, size = self.outputs
        reduced = zip(_OPERATORS, (minimum, maximum, total), strict=True)
        nodes = [helper.make_node(op, [self.tensor], [output], name=output, keepdims=0) for op, output in reduced]
        return [*nodes, helper.make_node("Size", [self.tensor], [size], name=size)]


def make_reduction(graph: Graph, tensor: str) -> Reduction:
    """A reduction under names that the graph does not use."""
    minimum, maximum, total, size = (_free_name(graph, tensor, what) for what in ("minimum", "maximum", "sum", "size"))
    return Reduction(tensor, (minimum, maximum, total, size))


def _free_name(graph: Graph, tensor: str, what: str) -> str:
    name = f"{tensor}/onnxq_{what}"
    while graph.has_tensor(name):
        name += "_"
    return name


def reducible(graph: Graph, tensors: Iterable[str], sizes: Mapping[str, int], feed: Feed) -> list[str]:
    """The tensors among `tensors` that can be reduced inside the graph, and for which that is faster.

    They must be made in the main graph, be float32 and cannot be empty: their dimensions are numbers or lengths that an
    input has as well. `sizes` are their bytes in a run of `feed`.
    """
    symbols = {dim for name in feed for dim in graph.shape(name) or () if isinstance(dim, str)}
    inputs = set(graph.input_names)
    found = []
    for name in tensors:
        shape = graph.shape(name)
        if name in inputs or shape is None or graph.dtype(name) != np.float32 or sizes[name] < 4 * SMALLEST:
            continue
        known = all((isinstance(dim, int) and dim > 0) or dim in symbols for dim in shape)
        if known and graph.home_of(name) is graph.gs:
            found.append(name)
    return found
