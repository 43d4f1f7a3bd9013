"""Tables of embeddings: the integers are looked up, and only what was found is dequantized.

    Gather(DequantizeLinear(table), indices)  ->  DequantizeLinear(Gather(table, indices))

Both compute the same numbers, bit for bit. In the first form onnxruntime dequantizes the whole table in every run: 36
ms and 47 MB for 30,522 words of 384 numbers; the second takes half a millisecond. A scale for each column goes along,
one for each row would have to be looked up as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node, Use
from onnxq.types import PerChannel, PerTensor, QuantSpec
from onnxq.types.granularity import resolve_axis

_LOOKED_UP = tuple(np.dtype(name) for name in ("int8", "uint8", "int16", "uint16"))
"""Types that Gather takes at every opset, in onnxruntime too."""


def looks_up(use: Use, spec: QuantSpec, shape: Sequence[int], stored: np.dtype[Any]) -> bool:
    """Whether a reader of a constant of this shape finds rows of it, which may be dequantized when they are found."""
    node = use.node
    if node.op != "Gather" or node.domain or use.port != 0 or int(node.attrs.get("axis", 0)) != 0:
        return False
    if len(shape) != 2 or stored not in _LOOKED_UP:
        return False
    along = spec.granularity
    return isinstance(along, PerTensor) or (isinstance(along, PerChannel) and resolve_axis(along.axis, 2) == 1)


def dequantize_found(graph: Graph, node: Node, integers: Any, parameters: Sequence[str], spec: QuantSpec) -> None:
    """Let a Gather look up `integers`; what it found is dequantized by the scale and zero point that are given."""
    found = node.outputs[0]
    node.inputs[0] = integers
    node.outputs[0] = graph.add_variable(f"{found.name}_quantized", integers.dtype, found.shape)
    attrs = {"axis": -1} if isinstance(spec.granularity, PerChannel) else {}
    label, scope = f"{found.name}_DequantizeLinear", graph.scope_of(node)
    graph.add_node("DequantizeLinear", [node.outputs[0], *parameters], [found], attrs=attrs, name=label, scope=scope)
