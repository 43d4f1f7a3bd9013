"""Looking things up in a model: nodes, tensors, producers, readers, values, patterns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx_graphsurgeon as surgeon

from onnxq.errors import ModelError, did_you_mean
from onnxq.graph.attributes import Attributes
from onnxq.graph.declare import declaration, declared_type
from onnxq.graph.names import Names
from onnxq.graph.nodes import Constant, Scope, Use, adopt, bodies
from onnxq.graph.pattern import Match, Pattern, find_pattern, parse_pattern
from onnxq.graph.values import constant_node_values, load_values


class _Readers:
    """Who reads which tensor, and which tensors are outputs, each found once; for a graph that nobody edits."""

    def __init__(self, scopes: Iterable[Scope]) -> None:
        self.outputs = frozenset(id(tensor) for scope in scopes for tensor in scope.outputs)
        self._ports: dict[int, dict[int, list[int]]] = {}
        self._uses: dict[int, list[Use]] = {}

    def uses(self, tensor: surgeon.Tensor) -> list[Use]:
        found = self._uses.get(id(tensor))
        if found is None:
            found = [
                Use(node, port)
                for node in _distinct(tensor.outputs)
                for port in self._ports_of(node).get(id(tensor), ())
            ]
            self._uses[id(tensor)] = found
        return list(found)

    def _ports_of(self, node: surgeon.Node) -> dict[int, list[int]]:
        """id of a tensor -> the ports at which a node reads it."""
        ports = self._ports.get(id(node))
        if ports is None:
            ports = self._ports[id(node)] = {}
            for port, read in enumerate(node.inputs):
                ports.setdefault(id(read), []).append(port)
        return ports


class Lookup:
    """The part of `Graph` that answers questions; nothing here changes the model."""

    gs: Scope
    _names: Names
    _scopes: list[Scope]
    _node_index: dict[str, tuple[surgeon.Node, Scope]]
    _tensor_index: dict[str, surgeon.Tensor]
    _kept: _Readers | None = None

    # ---- the index -----------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Take notice of direct edits of `gs`: index all names, and give nameless and twin nodes names of their own."""
        self._kept = None
        self._node_index, self._tensor_index = {}, {}
        self._scopes = self._find_scopes()
        for scope in self._scopes:
            for tensor in (*scope.inputs, *scope.outputs, *scope.initializers.values()):
                self._note_tensor(tensor)
            unnamed = []
            for node in scope.nodes:
                if type(node) is surgeon.Node:
                    adopt(node)
                if not node.name or self._node_index.get(node.name, (node,))[0] is not node:
                    unnamed.append(node)
                else:
                    self._node_index[node.name] = (node, scope)
                for tensor in (*node.inputs, *node.outputs):
                    self._note_tensor(tensor)
            self._names.know(nodes=self._node_index)
            for node in unnamed:
                node.name = self._names.fresh_node(node.name or node.op)
                self._node_index[node.name] = (node, scope)
        self._names.know(tensors=self._tensor_index)

    def _note_tensor(self, tensor: surgeon.Tensor) -> None:
        name = tensor.name
        known = self._tensor_index.get(name)
        if known is tensor:
            return
        adopt(tensor)
        if known is None:
            if name:
                self._tensor_index[name] = tensor
        else:
            raise ModelError(f"two different tensors are called '{name}'; give one of them a fresh name")

    def _find_scopes(self) -> list[Scope]:
        found: list[Scope] = []
        pending: list[Scope] = [self.gs]
        while pending:
            scope = pending.pop()
            adopt(scope)
            found.append(scope)
            inner = [body for node in scope.nodes for body in bodies(node)]
            pending.extend(reversed(inner))
        return found

    # ---- nodes and tensors by name -------------------------------------------------------------------------------

    def scopes(self) -> list[Scope]:
        """The main graph, then every body, outer before inner."""
        return list(self._scopes)

    def scope_of(self, node: surgeon.Node) -> Scope:
        """The graph (main or body) that holds `node`."""
        held = self._node_index.get(node.name)
        if held is None or held[0] is not node:
            raise ModelError(
                f"node '{node.name}' ({node.op}) is not in the graph; call refresh() after editing `gs` directly"
            )
        return held[1]

    def nodes(self, op: str | None = None) -> list[surgeon.Node]:
        """Every node, those of bodies directly after the node that owns them; with `op`, those of that name only.

        An operator of another domain may have the same name: look at `node.domain` where that matters.
        """
        found: list[surgeon.Node] = []
        _append_nodes(self.gs.nodes, op, found)
        return found

    def node(self, name: str) -> surgeon.Node:
        """The node called `name`, in whatever scope."""
        try:
            return self._node_index[name][0]
        except KeyError:
            raise ModelError(f"no node called '{name}'.{did_you_mean(name, self._node_index)}") from None

    def tensor(self, name: str) -> surgeon.Tensor:
        """The tensor called `name`, in whatever scope."""
        try:
            return self._tensor_index[name]
        except KeyError:
            raise ModelError(f"no tensor called '{name}'.{did_you_mean(name, self._tensor_index)}") from None

    def has_node(self, name: str) -> bool:
        return name in self._node_index

    def has_tensor(self, name: str) -> bool:
        return name in self._tensor_index

    def tensor_names(self) -> list[str]:
        """The names of all tensors, bodies and constants included."""
        return list(self._tensor_index)

    @property
    def input_names(self) -> list[str]:
        """The inputs a caller must feed; initializers that are also declared as inputs are not among them."""
        return [tensor.name for tensor in self.gs.inputs]

    @property
    def output_names(self) -> list[str]:
        return [tensor.name for tensor in self.gs.outputs]

    def _resolve(self, tensor: str | surgeon.Tensor) -> surgeon.Tensor:
        return self.tensor(tensor) if isinstance(tensor, str) else tensor

    @contextmanager
    def unchanging(self) -> Iterator[None]:
        """Find out once who reads a tensor, and whether it is an output.

        For stages that only look: without it, asking each of n readers of a tensor for its neighbours takes n * n
        steps. An edit through the methods of `Graph` ends it early; `gs` must not be edited inside.
        """
        if self._kept is not None:
            yield
            return
        self._kept = _Readers(self._scopes)
        try:
            yield
        finally:
            self._kept = None

    # ---- around a tensor -----------------------------------------------------------------------------------------

    def producer(self, tensor: str | surgeon.Tensor) -> surgeon.Node | None:
        """The node that makes a tensor; None for inputs, constants and inputs of a body."""
        tensor = self._resolve(tensor)
        return tensor.inputs[0] if tensor.inputs else None

    def consumers(self, tensor: str | surgeon.Tensor) -> list[Use]:
        """Every (node, port) that reads a tensor, inside bodies too; see `is_output` for outputs of a graph."""
        tensor = self._resolve(tensor)
        if self._kept is not None:
            return self._kept.uses(tensor)
        return [
            Use(node, port)
            for node in _distinct(tensor.outputs)
            for port, read in enumerate(node.inputs)
            if read is tensor
        ]

    def is_output(self, tensor: str | surgeon.Tensor) -> bool:
        """Whether a tensor is an output of the model or of a body."""
        tensor = self._resolve(tensor)
        if self._kept is not None:
            return id(tensor) in self._kept.outputs
        return any(tensor in scope.outputs for scope in self._scopes)

    def home_of(self, tensor: str | surgeon.Tensor) -> Scope:
        """The graph in which a tensor is made, stored or declared."""
        tensor = self._resolve(tensor)
        producer = self.producer(tensor)
        if producer is not None:
            return self.scope_of(producer)
        if isinstance(tensor, Constant):
            return self.gs if tensor.scope is None else tensor.scope
        for scope in self._scopes:
            if any(tensor is declared for declared in scope.inputs):
                return scope
        raise ModelError(f"nothing makes tensor '{tensor.name}', so it belongs to no graph")

    def shape(self, tensor: str | surgeon.Tensor) -> tuple[int | str | None, ...] | None:
        """Shape with names for symbolic and None for unknown dimensions; None when even the rank is unknown."""
        tensor = self._resolve(tensor)
        return None if tensor.shape is None else tuple(tensor.shape)

    def written_shape(self, tensor: str) -> tuple[int | str | None, ...] | None:
        """The shape that a file declares for an input or output, in the user's words where those are not known wrong.

        `shape` has no name for a dimension that does not follow from the inputs, though the user may have given one.
        """
        resolved = self._resolve(tensor)
        told = self.gs.output_declarations.get(tensor, getattr(resolved, "info", None))
        shape = declared_type(declaration(resolved, told, is_interface=True))[1]
        return None if shape is None else tuple(shape)

    def dtype(self, tensor: str | surgeon.Tensor) -> np.dtype[Any] | None:
        """numpy (or ml_dtypes) element type, None when unknown or not a plain tensor."""
        tensor = self._resolve(tensor)
        return None if tensor.dtype is None else np.dtype(tensor.dtype)

    # ---- constants -----------------------------------------------------------------------------------------------

    def constants(self) -> list[surgeon.Constant]:
        """Every initializer, bodies included."""
        return [tensor for tensor in self._tensor_index.values() if isinstance(tensor, surgeon.Constant)]

    def is_constant(self, tensor: str | surgeon.Tensor) -> bool:
        """Whether the values are known: an initializer or the output of a Constant node."""
        tensor = self._resolve(tensor)
        return isinstance(tensor, surgeon.Constant) or self._constant_node(tensor) is not None

    def values(self, tensor: str | surgeon.Tensor) -> np.ndarray:
        """The values of a constant, read afresh (keep the array if you need it twice); possibly read-only."""
        tensor = self._resolve(tensor)
        if isinstance(tensor, surgeon.Constant):
            return load_values(tensor._values)
        node = self._constant_node(tensor)
        if node is None:
            raise ModelError(f"tensor '{tensor.name}' is not a constant")
        return constant_node_values(node.attrs)

    def _constant_node(self, tensor: surgeon.Tensor) -> surgeon.Node | None:
        node = tensor.inputs[0] if tensor.inputs else None
        return node if node is not None and node.op == "Constant" and not node.domain and node.attrs else None

    # ---- patterns ------------------------------------------------------------------------------------------------

    def find(self, pattern: str | Pattern) -> list[Match]:
        """Every place where a pattern fits, without overlaps.

        A string names a chain of operators: "Conv -> BatchNormalization -> Relu" (`|` separates alternatives). For
        anything wider see `onnxq.graph.pattern`.
        """
        return find_pattern(self, parse_pattern(pattern) if isinstance(pattern, str) else pattern)


def _distinct(nodes: Iterable[surgeon.Node]) -> list[surgeon.Node]:
    return list({id(node): node for node in nodes}.values())


def _append_nodes(nodes: Iterable[surgeon.Node], op: str | None, found: list[surgeon.Node]) -> None:
    for node in nodes:
        if op is None or node.op == op:
            found.append(node)
        attrs = node.attrs  # as `has_plain_attributes`, without a call for each of many nodes
        if type(attrs) is not Attributes or attrs.may_have_graphs:
            for body in bodies(node):
                _append_nodes(body.nodes, op, found)
