"""Tensors inside the bodies of If, Loop and Scan made visible in the main graph, so that a run can return them.

A body's tensor is cast to float32, flattened, and handed out through the node that owns the body:

    If      one more output; the other branch gives an empty one, so that only what was computed is seen
    Loop    a scan output where the tensor's shape is fixed; otherwise, as iterations may differ in size, a state
            variable that collects the values of all iterations in a row
    Scan    a scan output: the tensors of a Scan body have one shape in all iterations

The next body outwards does the same with that output, up to the main graph. An iteration or a branch that does not run
contributes nothing.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, Variable, bodies
from onnxq.graph.nodes import Node, Scope

Size = Literal["fixed", "unknown", "varying"]
"""Whether a tensor has the same number of values each time its body runs."""


class Exposer:
    """Edits `graph` (give it a copy) so that tensors of bodies can be read in the main graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._owner: dict[int, tuple[Node, Scope]] = {}
        self._home: dict[str, Scope] = {}
        self._row: Any = None
        self._nothing: Any = None
        for scope in graph.scopes():
            for node in scope.nodes:
                for body in bodies(node):
                    self._owner[id(body)] = (node, scope)
            if scope is graph.gs:
                continue
            for tensor in [*scope.inputs, *(t for node in scope.nodes for t in node.outputs)]:
                self._home[tensor.name] = scope

    def is_inside(self, tensor: str) -> bool:
        """Whether a tensor is made inside a body."""
        return tensor in self._home

    def expose(self, tensor: str) -> str:
        """The main-graph tensor that carries the values of `tensor`: itself, or a new one for a tensor of a body."""
        scope = self._home.get(tensor)
        if scope is None:
            return tensor
        route = self._route(tensor, scope)
        shape = self.graph.shape(tensor)
        size: Size = "fixed" if shape is not None and all(isinstance(dim, int) for dim in shape) else "unknown"
        carried = self.graph.tensor(tensor)
        for node, body, outer in route:
            carried = self._flat(carried, body)
            if node.op == "If":
                carried = self._through_if(node, body, carried, np.zeros(0, np.float32))
            elif node.op == "Loop":
                carried = self._through_loop(node, body, carried, size)
            else:
                carried = self._through_scan(node, body, carried)
            size = "varying"
            if outer is self.graph.gs:
                break
        return str(carried.name)

    def pin(self, tensor: str) -> str | None:
        """Keep onnxruntime from fusing a tensor away: returns the main-graph tensor that has to be an output for it.

        Of a tensor of a body only the number of values is handed out. None for one that cannot be exposed either.
        """
        if tensor not in self._home:
            return tensor
        try:
            route = self._route(tensor, self._home[tensor])
        except UnsupportedError:
            return None
        carried = self.graph.tensor(tensor)
        for node, body, _ in route:
            size = self.graph.add_variable(f"{tensor}_pin", np.dtype(np.int64), [])
            self.graph.add_node("Size", [carried], [size], scope=body)
            if node.op == "If":
                carried = self._through_if(node, body, size, np.zeros((), np.int64))
            elif node.op == "Loop":
                carried = self._scan_output_of_loop(node, body, size)
            else:
                carried = self._through_scan(node, body, size)
        return str(carried.name)

    def _route(self, tensor: str, scope: Any) -> list[tuple[Any, Any, Any]]:
        """(node, its body, the graph around it) from the inside out; refused before anything is edited."""
        route: list[tuple[Any, Any, Any]] = []
        while scope is not self.graph.gs:
            node, outer = self._owner[id(scope)]
            if node.op not in ("If", "Loop", "Scan") or node.domain:
                raise UnsupportedError(
                    f"tensor '{tensor}' lies inside node '{node.name}' ({node.op}), whose inside cannot be observed"
                )
            if node.op == "Scan" and route:
                raise UnsupportedError(
                    f"tensor '{tensor}' lies inside '{route[-1][0].name}' ({route[-1][0].op}) inside the Scan "
                    f"'{node.name}', and a Scan cannot hand out values whose number differs between its steps"
                )
            route.append((node, scope, outer))
            scope = outer
        return route

    def _flat(self, tensor: Any, body: Any) -> Any:
        """The tensor in one dimension and float32, made in `body`."""
        if self._row is None:
            self._row = self.graph.add_constant("onnxq_row", np.array([-1], np.int64))
        if tensor.dtype != np.float32:
            cast = self._variable(f"{tensor.name}_float32")
            self.graph.add_node("Cast", [tensor], [cast], attrs={"to": int(onnx.TensorProto.FLOAT)}, scope=body)
            tensor = cast
        row = self._variable(f"{tensor.name}_row", 1)
        self.graph.add_node("Reshape", [tensor, self._row], [row], scope=body)
        return row

    def _variable(self, hint: str, rank: int | None = None) -> Variable:
        return self.graph.add_variable(hint, np.dtype(np.float32), None if rank is None else [None] * rank)

    def _through_if(self, node: Any, body: Any, carried: Any, otherwise: np.ndarray) -> Any:
        """One more output; the branch that does not make it gives `otherwise`."""
        for branch in bodies(node):
            if branch is body:
                branch.outputs.append(carried)
                continue
            empty = self.graph.add_variable(f"{carried.name}_empty", otherwise.dtype, list(otherwise.shape))
            self.graph.add_node("Constant", [], [empty], attrs={"value": otherwise}, scope=branch)
            branch.outputs.append(empty)
        seen = self.graph.add_variable(f"{carried.name}_seen", otherwise.dtype, [None] * otherwise.ndim)
        node.outputs.append(seen)
        return seen

    def _scan_output_of_loop(self, node: Any, body: Any, carried: Any) -> Any:
        """One more output that joins what all iterations give, for something of one shape."""
        while len(node.outputs) < len(body.outputs) - 1:
            node.outputs.append(self.graph.add_variable(f"{node.name}_unused"))
        body.outputs.append(carried)
        seen = self.graph.add_variable(f"{carried.name}_seen", carried.dtype, [None] * (len(carried.shape) + 1))
        node.outputs.append(seen)
        return seen

    def _through_loop(self, node: Any, body: Any, row: Any, size: Size) -> Any:
        if size == "fixed":
            return self._scan_output_of_loop(node, body, row)
        while len(node.outputs) < len(body.outputs) - 1:
            node.outputs.append(self.graph.add_variable(f"{node.name}_unused"))
        while len(node.inputs) < 2:
            node.inputs.append(Variable(""))
        states = len(node.inputs) - 2
        if self._nothing is None:
            self._nothing = self.graph.add_constant("onnxq_nothing", np.zeros(0, np.float32))
        before, after = self._variable(f"{row.name}_before", 1), self._variable(f"{row.name}_after", 1)
        self.graph.add_node("Concat", [before, row], [after], attrs={"axis": 0}, scope=body)
        node.inputs.append(self._nothing)
        body.inputs.append(before)
        body.outputs.insert(1 + states, after)
        seen = self._variable(f"{row.name}_seen", 1)
        node.outputs.insert(states, seen)
        return seen

    def _through_scan(self, node: Any, body: Any, row: Any) -> Any:
        body.outputs.append(row)
        for attribute in ("scan_output_axes", "scan_output_directions"):
            if node.attrs.get(attribute):
                node.attrs[attribute] = [*node.attrs[attribute], 0]
        seen = self.graph.add_variable(f"{row.name}_seen", row.dtype)
        node.outputs.append(seen)
        return seen


def expose(graph: Graph, tensor: str) -> str:
    """Make one tensor readable in the main graph (edits `graph`); returns the name of the tensor that carries it."""
    return Exposer(graph).expose(tensor)
