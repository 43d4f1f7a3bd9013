"""Tables of embeddings: the integers are looked up, and only what was found is dequantized.

    Gather(DequantizeLinear(table), indices)  ->  DequantizeLinear(Gather(table, indices))

Both compute the same numbers, bit for bit. In the first form onnxruntime dequantizes the whole table in every run: 36
ms and 47 MB for 30,522 words of 384 numbers; the second takes less than a millisecond. One scale for each row would
have to be looked up as well, and is not written in this way.

A scale for each column is a Mul behind a DequantizeLinear by 1: onnxruntime 1.31 takes a DequantizeLinear with several
scales in front of an Add or a MatMul for one with a single scale, and then refuses the kernel that it made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node, Use
from onnxq.types import PerChannel, PerTensor, QParams, QuantSpec
from onnxq.types.granularity import resolve_axis

_LOOKED_UP = tuple(np.dtype(name) for name in ("int8", "uint8", "int16", "uint16"))
"""Types that Gather takes at every opset, in onnxruntime too."""


def looks_up(use: Use, spec: QuantSpec, shape: Sequence[int], stored: np.dtype[Any], real: Any) -> bool:
    """Whether a reader of a constant of this shape finds rows of it, which may be dequantized when they are found."""
    node = use.node
    if node.op != "Gather" or node.domain or use.port != 0 or int(node.attrs.get("axis", 0)) not in (0, -2):
        return False
    if len(shape) != 2 or stored not in _LOOKED_UP or real != np.float32:
        return False
    along = spec.granularity
    return isinstance(along, PerTensor) or (isinstance(along, PerChannel) and resolve_axis(along.axis, 2) == 1)


def look_up_integers(graph: Graph, node: Node, integers: Any) -> tuple[Any, Any]:
    """Let a Gather look up `integers`; returns what it finds and the tensor that its readers still read."""
    found = node.outputs[0]
    node.inputs[0] = integers
    node.outputs[0] = graph.add_variable(f"{found.name}_quantized", integers.dtype, found.shape)
    return node.outputs[0], found


def scale_columns(graph: Graph, looked_up: Any, found: Any, parameters: QParams, scope: Any) -> None:
    """Make `found` of the integers that were looked up: float, without zero points, times the scale of each column."""

    def constant(what: str, values: Any) -> Any:
        return graph.add_constant(f"{found.name}_{what}", values, scope=scope)

    def computed(op: str, inputs: list[Any], what: str) -> Any:
        made = graph.add_variable(f"{found.name}_{what}", np.dtype(np.float32), found.shape)
        graph.add_node(op, inputs, [made], name=f"{found.name}_{what}", scope=scope)
        return made

    one = [constant("one", np.float32(1)), constant("none", np.zeros((), looked_up.dtype))]
    steps = computed("DequantizeLinear", [looked_up, *one], "DequantizeLinear")
    if parameters.zero_point.any():
        steps = computed("Sub", [steps, constant("zero_points", parameters.zero_point.astype(np.float32))], "Sub")
    scales = constant("scales", parameters.scale.astype(np.float32))
    graph.add_node("Mul", [steps, scales], [found], name=f"{found.name}_Mul", scope=scope)
