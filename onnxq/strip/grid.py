"""Grid: scale and zero point of a quantized tensor as a node names them, and whether two of them are the same."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.passes.rewriter import has_input


class Stays(Exception):
    """A node that cannot be made float exactly; the text is the reason shown to the user.

    `node` names it where it is not the node that is looked at.
    """

    def __init__(self, reason: str, node: str = "") -> None:
        super().__init__(reason)
        self.node = node


@dataclass(frozen=True, eq=False)
class Grid:
    """The tensors that hold scale and zero point (None: zero), and the axis and size of channels or blocks."""

    scale: Any
    zero_point: Any | None = None
    axis: int = 1
    block: int = 0

    @classmethod
    def of(cls, node: Node, scale: int, zero_point: int, axis: int = 1, block: int = 0) -> Grid:
        """The one whose parameters a node reads at these ports."""
        zeros = node.inputs[zero_point] if has_input(node, zero_point) else None
        return cls(node.inputs[scale], zeros, axis, block)

    def key(self, graph: Graph) -> tuple[Any, ...]:
        """The same for equal parameters: by value where they are constants, by tensor where they are computed."""
        zero_point = _NO_ZERO_POINT if self.zero_point is None else _key(graph, self.zero_point, whole=True)
        key = (_key(graph, self.scale), zero_point)
        known = graph.values(self.scale).shape if graph.is_constant(self.scale) else graph.shape(self.scale)
        single = known is not None and all(size == 1 for size in known)
        return key if single and not self.block else (*key, self.axis, self.block)

    def scale_values(self, graph: Graph) -> np.ndarray:
        """The scales, where they are constants."""
        if not graph.is_constant(self.scale):
            raise Stays(f"its scale '{self.scale.name}' is computed at run time")
        return graph.values(self.scale)

    def zero_point_values(self, graph: Graph) -> np.ndarray | None:
        if self.zero_point is None:
            return None
        if not graph.is_constant(self.zero_point):
            raise Stays(f"its zero point '{self.zero_point.name}' is computed at run time")
        return graph.values(self.zero_point)


def _key(graph: Graph, tensor: Any, *, whole: bool = False) -> tuple[Any, ...]:
    """A tensor by its values, of which blocks have millions; `whole` numbers count whatever their type.

    As many equal numbers as there are channels are the same as one.
    """
    if not graph.is_constant(tensor):
        return ("tensor", id(tensor))
    values = graph.values(tensor)
    values = values.astype(np.int64) if whole else values
    if whole and values.size and (values == values.flat[0]).all():
        values = values.reshape(-1)[:1]
    return (values.dtype.name, values.size, sha256(np.ascontiguousarray(values).tobytes()).digest())


_NO_ZERO_POINT = ("int64", 1, sha256(np.zeros(1, np.int64).tobytes()).digest())
