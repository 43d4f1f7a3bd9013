"""Changing a model: new nodes and tensors, other readers, other names; everything not touched stays as it was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from onnxq.errors import ModelError
from onnxq.graph.attributes import AttributeValues
from onnxq.graph.liveness import dead_nodes
from onnxq.graph.names import Origins
from onnxq.graph.nodes import Constant, Node, Use, Variable, adopt, bodies, inner_nodes
from onnxq.graph.query import Lookup
from onnxq.graph.units import Units
from onnxq.graph.values import LazyValues


class Editing(Lookup):
    """The part of `Graph` that changes the model. Names given out once are never given out again."""

    origins: Origins
    units: Units

    # ---- new things ----------------------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """A new tensor name that starts with `hint`."""
        return self._names.fresh(hint)

    def add_constant(self, hint: str, values: np.ndarray | LazyValues, *, scope: gs.Graph | None = None) -> Constant:
        """A new initializer; in the main graph unless `scope` names a body."""
        home = self.gs if scope is None else scope
        constant = Constant(
            self.fresh(hint), values if isinstance(values, LazyValues) else np.asarray(values), scope=home
        )
        home.initializers[constant.name] = constant
        self._tensor_index[constant.name] = constant
        return constant

    def set_values(self, tensor: str | gs.Tensor, values: np.ndarray) -> None:
        """New values of the same shape and dtype for a constant: an initializer, or the output of a Constant node."""
        tensor = self._resolve(tensor)
        held = tensor._values if isinstance(tensor, gs.Constant) else self.values(tensor)
        if tuple(held.shape) != values.shape or held.dtype != values.dtype:
            raise ModelError(
                f"constant '{tensor.name}' is {held.dtype} of shape {held.shape}; values of {values.dtype} "
                f"{values.shape} cannot take its place"
            )
        if isinstance(tensor, gs.Constant):
            tensor.values = values
            return
        node = self._constant_node(tensor)
        assert node is not None  # otherwise there were no values
        node.attrs.clear()
        node.attr_types.clear()
        node.attrs["value"] = Constant("", values)

    def add_variable(self, hint: str, dtype: Any = None, shape: Sequence[int | str | None] | None = None) -> Variable:
        """A new tensor that some node is going to produce."""
        variable = Variable(self.fresh(hint), dtype, None if shape is None else list(shape))
        self._tensor_index[variable.name] = variable
        return variable

    def add_node(
        self,
        op: str,
        inputs: Sequence[str | gs.Tensor | None],
        outputs: Sequence[str | gs.Tensor | None] | None = None,
        *,
        attrs: AttributeValues | None = None,
        name: str | None = None,
        domain: str = "",
        scope: gs.Graph | None = None,
    ) -> Node:
        """Add a node; without `outputs` it makes one new tensor. None or "" stands for an omitted input or output.

        Order does not matter: `sort` runs before saving.
        """
        return self._put_node(op, self._names.fresh_node(name or op), inputs, outputs, attrs, domain, scope)

    def _put_node(
        self,
        op: str,
        name: str,
        inputs: Sequence[str | gs.Tensor | None],
        outputs: Sequence[str | gs.Tensor | None] | None,
        attrs: AttributeValues | None,
        domain: str,
        scope: gs.Graph | None,
    ) -> Node:
        self._kept = None
        read = [self._operand(item) for item in inputs]
        made = [self.add_variable(f"{name}_output")] if outputs is None else [self._operand(item) for item in outputs]
        node = Node(op, name, attrs, read, made, domain)
        home = self.gs if scope is None else scope
        home.nodes.append(node)
        self._node_index[name] = (node, home)
        if bodies(node):
            self.refresh()
        return node

    def _operand(self, item: str | gs.Tensor | None) -> gs.Tensor:
        if item is None or item == "":
            return Variable("")
        tensor = self._resolve(item)
        adopt(tensor)
        self._note_tensor(tensor)
        return tensor

    # ---- taking away ---------------------------------------------------------------------------------------------

    def remove(self, nodes: gs.Node | Iterable[gs.Node]) -> None:
        """Take nodes out of the graph.

        What reads their outputs must be redirected or get another producer: `save` refuses a tensor that nothing makes.
        """
        self._kept = None
        doomed = {id(node): node for node in ([nodes] if isinstance(nodes, gs.Node) else nodes)}
        touched = {id(scope): scope for scope in (self.scope_of(node) for node in doomed.values())}
        inside = [inner for node in doomed.values() for inner in inner_nodes(node)]
        for node in (*inside, *doomed.values()):  # only then does a tensor between two of them have no readers
            node.inputs.clear()
        for node in inside:
            self._unlink(node, forget=node.outputs)
        for node in doomed.values():
            self._unlink(node, forget=[t for t in node.outputs if not t.outputs and not self.is_output(t)])
        for scope in touched.values():
            scope.nodes = [node for node in scope.nodes if id(node) not in doomed]
        if any(bodies(node) for node in doomed.values()):
            self._scopes = self._find_scopes()

    def _unlink(self, node: gs.Node, forget: Iterable[gs.Tensor]) -> None:
        own = (tensor for body in bodies(node) for tensor in (*body.inputs, *body.initializers.values()))
        for tensor in (*forget, *own):
            self._tensor_index.pop(tensor.name, None)
        node.outputs.clear()
        del self._node_index[node.name]
        self.units.forget(node.name)

    def remove_dead(self) -> list[str]:
        """Remove nodes whose outputs nobody reads and initializers without readers; returns the names of the nodes."""
        removed: list[str] = []
        for scope in reversed(self.scopes()):  # inner first: a body that reads less may free nodes outside
            doomed = dead_nodes(scope)
            removed.extend(node.name for node in doomed)
            self.remove(doomed)
        self.remove_unused_constants()
        return removed

    def remove_unused_constants(self) -> list[str]:
        """Remove initializers that nobody reads; returns their names."""
        removed = []
        outputs = {id(tensor) for scope in self._scopes for tensor in scope.outputs}
        for scope in self._scopes:
            for name, constant in list(scope.initializers.items()):
                if not constant.outputs and id(constant) not in outputs:
                    del scope.initializers[name]
                    self._tensor_index.pop(name, None)
                    removed.append(name)
        return removed

    # ---- other readers, other names ------------------------------------------------------------------------------

    def redirect(self, old: str | gs.Tensor, new: str | gs.Tensor, *, uses: Iterable[Use] | None = None) -> None:
        """Let readers of `old` read `new` instead: the given uses, or all of them with graph outputs.

        Without `uses`, the node that makes `new` keeps reading `old`. A graph output keeps its name: `new` takes it
        over, and `old` gets a fresh one. An output that is at the same time an input of the model stays what it is: it
        could not change without one of the two losing its name.
        """
        old, new = self._resolve(old), self._operand(new)
        maker = self.producer(new)
        chosen = [use for use in self.consumers(old) if use.node is not maker] if uses is None else list(uses)
        self._kept = None
        for node, port in chosen:
            node.inputs[port] = new
        if uses is None:
            self.take_over_outputs(old, new)

    def take_over_outputs(self, old: gs.Tensor, new: gs.Tensor) -> None:
        """Where `old` is an output of the model or of a body, make `new` that output, under the same name."""
        self._kept = None
        for scope in self._scopes:
            if scope is not self.gs and old in scope.outputs:
                carrier = new
                if self.home_of(new) is not scope:  # onnxruntime wants a body to return only what is its own
                    carrier = self.add_node("Identity", [new], scope=scope).outputs[0]
                    carrier.dtype, carrier.shape = old.dtype, old.shape
                scope.outputs = [carrier if output is old else output for output in scope.outputs]
        main = self.gs
        fixed = old.name in main.overridable or old in main.inputs
        if fixed or old not in main.outputs:
            return
        name = old.name
        self._set_name(old, self.fresh(f"{name}_before"))
        if isinstance(new, gs.Constant) or new in main.inputs or new in main.outputs:
            carrier = Variable(name, old.dtype, old.shape)
            self._tensor_index[name] = carrier
            self.add_node("Identity", [new], [carrier], name=f"{name}_identity")
        else:
            carrier = new
            self._set_name(new, name)
            new.dtype = old.dtype if new.dtype is None else new.dtype
            new.shape = old.shape if new.shape is None else new.shape
        main.outputs = [carrier if output is old else output for output in main.outputs]

    def rename(self, tensor: str | gs.Tensor, name: str, *, claim: bool = True) -> str:
        """Give a tensor the name `name`, or a variation when it is taken; returns the name it got.

        With claim=False the caller vouches that the name is free.
        """
        tensor = self._resolve(tensor)
        old = tensor.name
        if old == name:
            return name
        new = self._names.fresh(name) if claim else name
        for scope in self._scopes:
            if any(tensor is output for output in scope.outputs) and old in scope.output_declarations:
                scope.output_declarations[new] = scope.output_declarations.pop(old)
            scope.quantization_annotation = [_renamed(a, old, new) for a in scope.quantization_annotation]
        self._set_name(tensor, new)
        if self._names.is_from_file(old):
            self.origins.tensor_became(old, new)
        return new

    def _set_name(self, tensor: gs.Tensor, new: str) -> None:
        old = tensor.name
        tensor.name = new
        if self._tensor_index.get(old) is tensor:
            del self._tensor_index[old]
        self._tensor_index[new] = tensor
        scope = tensor.scope if isinstance(tensor, Constant) else None
        if scope is not None and scope.initializers.get(old) is tensor:
            scope.initializers[new] = scope.initializers.pop(old)
            if old in scope.overridable:
                scope.overridable = {new if key == old else key: held for key, held in scope.overridable.items()}


def _renamed(annotation: onnx.TensorAnnotation, old: str, new: str) -> onnx.TensorAnnotation:
    """A tensor annotation that follows a rename, both as its subject and in the parameters it names."""
    if annotation.tensor_name != old and all(entry.value != old for entry in annotation.quant_parameter_tensor_names):
        return annotation
    changed = onnx.TensorAnnotation()
    changed.CopyFrom(annotation)
    changed.tensor_name = new if annotation.tensor_name == old else annotation.tensor_name
    for entry in changed.quant_parameter_tensor_names:
        entry.value = new if entry.value == old else entry.value
    return changed
