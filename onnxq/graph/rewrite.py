"""Whole rewrites: a node behind a tensor, one node in place of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_graphsurgeon as gs

from onnxq.errors import ModelError
from onnxq.graph.attributes import AttributeValues
from onnxq.graph.edit import Editing
from onnxq.graph.nodes import Node, Use, inner_nodes
from onnxq.graph.pattern import Match


class Rewriting(Editing):
    """The part of `Graph` that makes several edits at once."""

    def insert_after(
        self,
        tensor: str | gs.Tensor,
        op: str,
        *,
        attrs: AttributeValues | None = None,
        extra_inputs: Sequence[str | gs.Tensor] = (),
        uses: Iterable[Use] | None = None,
        name: str | None = None,
        domain: str = "",
    ) -> Node:
        """Put a node behind a tensor; `uses` (default: all readers and outputs) read the node's output from then on.

        The node lives where the tensor does, so that every reader, inside a body or not, can see its output.
        """
        tensor = self._resolve(tensor)
        chosen = None if uses is None else list(uses)
        label = f"{tensor.name}_{op}"
        output = self.add_variable(label, tensor.dtype, tensor.shape)
        home = self.home_of(tensor)
        node = self.add_node(
            op, [tensor, *extra_inputs], [output], attrs=attrs, name=name or label, domain=domain, scope=home
        )
        self.redirect(tensor, output, uses=chosen)
        return node

    def replace(
        self,
        nodes: Match | gs.Node | Sequence[gs.Node],
        op: str,
        inputs: Sequence[str | gs.Tensor | None],
        *,
        attrs: AttributeValues | None = None,
        domain: str = "",
        name: str | None = None,
        output: str | gs.Tensor | None = None,
    ) -> Node:
        """Exchange nodes for one new node that makes the same output tensor.

        `output` defaults to the only tensor that leaves the group. The new node takes the name (unless `name` is given)
        and the metadata of the node that made it, and `origins` records that it stands for all of them.
        """
        group = (
            list(nodes.nodes) if isinstance(nodes, Match) else [nodes] if isinstance(nodes, gs.Node) else list(nodes)
        )
        made = self._resolve(output) if output is not None else self._leaving(group)
        producer = next((node for node in group if any(made is tensor for tensor in node.outputs)), None)
        if producer is None:
            raise ModelError(f"no node of the group makes tensor '{made.name}'")
        read = [self._operand(item) for item in inputs]
        self._check_replaceable(group, made, read)
        scope, old_names, metadata = self.scope_of(producer), [node.name for node in group], producer.metadata
        producer.outputs.remove(made)
        self.remove(group)
        new = self._put_node(
            op, producer.name if name is None else self._names.fresh_node(name), read, [made], attrs, domain, scope
        )
        new.metadata = dict(metadata)
        for old in old_names:
            self.origins.node_became(old, new.name)
        return new

    def _check_replaceable(self, group: Sequence[gs.Node], made: gs.Tensor, read: Sequence[gs.Tensor]) -> None:
        lost = {id(tensor): tensor for tensor, _ in self._leaving_tensors(group) if tensor is not made}
        for tensor, reader in self._leaving_tensors(group):
            if id(tensor) in lost:
                raise ModelError(f"cannot replace the group: its tensor '{tensor.name}' is also read by {reader}")
        inside = {id(tensor) for node in group for tensor in node.outputs}
        for tensor in read:
            if id(tensor) in inside:
                raise ModelError(f"the new node cannot read '{tensor.name}', which a replaced node makes")

    def _leaving(self, group: Sequence[gs.Node]) -> gs.Tensor:
        leaving = {id(tensor): tensor for tensor, _ in self._leaving_tensors(group)}
        if len(leaving) != 1:
            names = ", ".join(f"'{tensor.name}'" for tensor in leaving.values()) or "none"
            raise ModelError(
                f"the group must have exactly one tensor that is read outside, it has {names}; say which with output="
            )
        return next(iter(leaving.values()))

    def _leaving_tensors(self, group: Sequence[gs.Node]) -> list[tuple[gs.Tensor, str]]:
        """Tensors made in the group and read outside, each with one who reads it."""
        inside = {id(node) for member in group for node in [member, *inner_nodes(member)]}
        found = []
        for node in group:
            for tensor in node.outputs:
                reader = next((reader for reader in tensor.outputs if id(reader) not in inside), None)
                if reader is not None:
                    found.append((tensor, f"node '{reader.name}' ({reader.op})"))
                elif tensor.name and self.is_output(tensor):
                    found.append((tensor, "the outputs of a graph"))
        return found
