"""Reals: for a tensor of quantized numbers, the float tensor that they stand for.

    constant                          -> constant of its real numbers
    QuantizeLinear(x)                 -> x (with the Relu or Clip that saturation stood for); rounded, if x is constant
    DynamicQuantizeLinear(x)          -> x
    QLinearConv, QLinearAdd ...       -> Conv, Add ... of the float tensors
    Reshape, Gather, MaxPool ...      -> the same on the float tensor

Nodes are added, and none is removed: whoever reads numbers that have no float tensor goes on reading them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx

from onnxq.graph import DeferredValues, Graph, Node
from onnxq.passes.edits import LARGE_BYTES, held_values, loaded
from onnxq.passes.rewriter import has_input, shown
from onnxq.strip.grid import Grid, Stays
from onnxq.strip.numbers import parameters, real_values, rounded_values
from onnxq.strip.operators import MICROSOFT
from onnxq.strip.saturation import Saturation

_MOVES = {
    **dict.fromkeys(("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Expand", "Tile"), (0,)),
    **dict.fromkeys(("Slice", "Gather", "GatherND", "GatherElements", "Split", "Compress", "ReverseSequence"), (0,)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth", "MaxPool", "Resize", "Upsample"), (0,)),
    "Where": (1, 2),
}
"""Operators that pick among numbers, whatever they stand for -> the inputs that they pick from."""

Float = Callable[["Reals", Node], Any]
"""Makes the float tensor of a node's first output."""

Layers = Mapping[tuple[str, str], tuple[Float, Callable[[Node], "Grid | None"]]]
"""(domain, operator) -> what makes its float form, and which grid its result is rounded to (None: it is float)."""


class Reals:
    """The float tensors of one graph, each made once."""

    def __init__(self, graph: Graph, layers: Layers, *, keep_ranges: bool = False) -> None:
        self.graph = graph
        self.saturation = Saturation(graph, keep_ranges=keep_ranges)
        self._layers = layers
        self._found: dict[tuple[Any, ...], Any] = {}

    def real(self, codes: Any, grid: Grid) -> Any:
        """The float tensor that `codes` stand for under a grid; Stays where there is none."""
        key = (id(codes), grid.key(self.graph))
        if key not in self._found:
            self._found[key] = self._make(codes, grid)
        return self._found[key]

    def own_grid(self, codes: Any) -> Grid:
        """The grid that the maker of a tensor has rounded to, moves in between left aside."""
        node = self.graph.producer(codes)
        while node is not None and not node.domain and node.op in _MOVES:
            node = self.graph.producer(node.inputs[_MOVES[node.op][0]])
        if node is not None:
            grid = self._grid_of_maker(node)
            if grid is not None:
                return grid
        raise Stays(f"nothing says what the integers '{codes.name}' stand for")

    def add(self, node: Node, op: str, inputs: Sequence[Any], *, attrs: Any = None, domain: str = "") -> Any:
        """A float node in the scope of the node that it stands for, and under its name as far as that is free."""
        name = node.name.removesuffix("_quant")
        made = self.graph.add_node(
            op,
            inputs,
            attrs=attrs,
            name=name if name != node.name else f"{name}_float",
            domain=domain,
            scope=self.graph.scope_of(node),
        )
        self.graph.origins.node_became(node.name, made.name)
        return made.outputs[0]

    def constant(self, hint: str, node: Node, values: np.ndarray) -> Any:
        """A new constant for a node."""
        return self.graph.add_constant(hint, values, scope=self.graph.scope_of(node))

    def computed(
        self, hint: str, shape: Sequence[int], dtype: Any, compute: Callable[[], np.ndarray], scope: Any
    ) -> Any:
        """A new constant, which is computed again when it is needed if it is large."""
        large = math.prod(shape) * np.dtype(dtype).itemsize >= LARGE_BYTES
        values = DeferredValues(shape, np.dtype(dtype), compute) if large else compute()
        return self.graph.add_constant(hint, values, scope=scope)

    # ---- makers --------------------------------------------------------------------------------------------------

    def _grid_of_maker(self, node: Node) -> Grid | None:
        if node.op == "QuantizeLinear" and node.domain in ("", MICROSOFT):
            return quantizer_grid(node)
        if node.op == "DynamicQuantizeLinear" and not node.domain:
            return Grid(node.outputs[1], node.outputs[2])
        layer = self._layers.get((node.domain or "", node.op))
        return None if layer is None else layer[1](node)

    def _make(self, codes: Any, grid: Grid) -> Any:
        graph = self.graph
        if graph.is_constant(codes):
            return self._stored(codes, grid, graph.home_of(codes))
        node = graph.producer(codes)
        if node is None:
            raise Stays(f"the integers '{codes.name}' come from outside: they are an input of the model or of a body")
        own = self._grid_of_maker(node)
        if own is None:
            if not node.domain and codes is not _second_output(node):
                return self._moved(node, codes, grid)
            raise Stays(f"{shown(node)} makes its integers, and has no float form that is known")
        if own.key(graph) != grid.key(graph):
            raise Stays(f"{shown(node)} has rounded '{codes.name}' with another scale or zero point than is used here")
        if node.op == "QuantizeLinear" and graph.is_constant(node.inputs[0]):
            return self._rounded(node, grid)
        if node.op in ("QuantizeLinear", "DynamicQuantizeLinear"):
            x = node.inputs[0]
        else:
            x = self._layers[(node.domain or "", node.op)][0](self, node)
        return x if node.op == "DynamicQuantizeLinear" else self.saturation.limited(x, grid, stored_type(graph, node))

    def _moved(self, node: Node, codes: Any, grid: Grid) -> Any:
        graph = self.graph
        if grid.block or (graph.is_constant(grid.scale) and graph.values(grid.scale).size != 1):
            raise Stays(f"{shown(node)} moves integers that have scales of their own for channels or blocks")
        if node.op == "Concat":
            inputs = [self.real(tensor, grid) for tensor in node.inputs]
        elif node.op == "Pad":
            inputs = [self.real(node.inputs[0], grid), *node.inputs[1:2], self._padding(node, grid), *node.inputs[3:]]
        elif node.op in _MOVES:
            ports = _MOVES[node.op]
            inputs = [self.real(t, grid) if port in ports else t for port, t in enumerate(node.inputs)]
        else:
            raise Stays(f"{shown(node)} computes with integers, and has no float form that is known")
        made = [graph.add_variable(f"{tensor.name}_float") if tensor.name else None for tensor in node.outputs]
        name, scope = f"{node.name}_float", graph.scope_of(node)
        new = graph.add_node(node.op, inputs, made, attrs=dict(node.attrs), name=name, scope=scope)
        graph.origins.node_became(node.name, new.name)
        for old, tensor in zip(node.outputs, new.outputs, strict=True):
            self._found[(id(old), grid.key(graph))] = tensor
        return self._found[(id(codes), grid.key(graph))]

    def _padding(self, node: Node, grid: Grid) -> Any:
        """What is padded with, as a real number: without one, integers are padded with 0, which stands for another."""
        graph = self.graph
        if node.attrs.get("mode", "constant") != "constant":
            return None
        if has_input(node, 2) and not graph.is_constant(node.inputs[2]):
            raise Stays(f"{shown(node)} pads with a number that is computed at run time")
        code = graph.values(node.inputs[2]).reshape(()) if has_input(node, 2) else np.int32(0)
        scale, zero_point = grid.scale_values(graph), grid.zero_point_values(graph)
        zero = 0 if zero_point is None else int(zero_point.reshape(-1)[0])
        value = (np.float32(int(code) - zero) * scale.reshape(()).astype(np.float32)).astype(scale.dtype)
        return graph.add_constant(f"{node.name}_value", value, scope=graph.scope_of(node))

    # ---- constants -----------------------------------------------------------------------------------------------

    def _stored(self, codes: Any, grid: Grid, scope: Any) -> Any:
        graph = self.graph
        held = held_values(graph, codes)
        scale = grid.scale_values(graph)
        found = parameters(
            held.dtype.name,
            scale,
            grid.zero_point_values(graph),
            shape=tuple(held.shape),
            axis=grid.axis,
            block=grid.block,
        )
        compute = partial(_real, held, found, scale.dtype)
        return self.computed(f"{codes.name}_float", held.shape, scale.dtype, compute, scope)

    def _rounded(self, node: Node, grid: Grid) -> Any:
        """A float weight that the file stores in front of its quantizer."""
        graph = self.graph
        held, scale = held_values(graph, node.inputs[0]), grid.scale_values(graph)
        found = parameters(
            stored_type(graph, node).name,
            scale,
            grid.zero_point_values(graph),
            shape=tuple(held.shape),
            axis=grid.axis,
            block=grid.block,
        )
        compute = partial(_rounded, held, found, scale.dtype)
        name, scope = f"{node.inputs[0].name}_rounded", graph.scope_of(node)
        return self.computed(name, held.shape, scale.dtype, compute, scope)


def quantizer_grid(node: Node) -> Grid:
    """The parameters of a QuantizeLinear or DequantizeLinear."""
    return Grid.of(node, 1, 2, int(node.attrs.get("axis", 1)), int(node.attrs.get("block_size", 0)))


def stored_type(graph: Graph, node: Node) -> np.dtype:
    """The type of the numbers that a node makes: that of its zero point, or what it is told."""
    made = graph.dtype(node.outputs[0])
    if made is not None:
        return made
    if node.op == "QuantizeLinear" and has_input(node, 2):
        known = graph.dtype(node.inputs[2])
        if known is not None:
            return known
    told = int(node.attrs.get("output_dtype", 0))
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(told)) if told else np.dtype(np.uint8)


def _real(held: Any, found: Any, dtype: np.dtype) -> np.ndarray:
    return real_values(loaded(held), found, dtype)


def _rounded(held: Any, found: Any, dtype: np.dtype) -> np.ndarray:
    return rounded_values(loaded(held), found, dtype)


def _second_output(node: Node) -> Any:
    return node.outputs[1] if node.op == "MaxPool" and len(node.outputs) > 1 else None
