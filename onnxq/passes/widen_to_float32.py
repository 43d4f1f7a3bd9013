"""A model that computes in bfloat16 or float16 computes in float32 inside; its inputs and outputs keep their types."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from onnxq.graph import Constant, DeferredValues, Graph, LazyValues, Node, Use, bodies
from onnxq.numerics import let_go
from onnxq.numerics.compiled import in_float32
from onnxq.numerics.spare import SpareMemory
from onnxq.passes.base import PassResult
from onnxq.passes.edits import LARGE_BYTES, loaded, node_line

_TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype", "output_dtype", "stash_type", "softmax_precision")
"""Attributes that name an element type, over all operators of the default domain."""

_BIT_PATTERN_OPS = ("BitCast",)
"""Operators that depend on the width of the type; like those of other domains, they keep the narrow type."""


def widen_to_float32(graph: Graph, narrow: np.dtype[Any]) -> PassResult:
    """Widen what is `narrow` inside, with a Cast behind each input and before each output of the model."""
    return _Widening(graph, narrow).run()


class _Widening:
    """One run. Tensors stay narrow where somebody else decides on their type: inputs of the model, results of custom
    operators, and Casts that exist only to feed those or an output; everything else becomes float32."""

    def __init__(self, graph: Graph, narrow: np.dtype[Any]) -> None:
        self._graph = graph
        self._narrow = narrow
        self._narrow_type = int(onnx.helper.np_dtype_to_tensor_dtype(narrow))
        self._result = PassResult()
        self._memory = SpareMemory()

    def run(self) -> PassResult:
        if not self._has_source():
            return self._result
        self._graph.infer_shapes()  # a tensor of unknown type could not be converted
        declared = [*self._graph.gs.inputs, *self._graph.gs.outputs]
        for tensor in declared:
            if _retyped(getattr(tensor, "info", None), self._narrow_type) is not None and tensor.type != "tensor_type":
                self._result.declined.append(
                    f"the model: '{tensor.name}' is a sequence or optional of {self._narrow}, which no Cast converts"
                )
                return self._result
        fixed = self._fixed_tensors()
        for tensor in fixed.values():
            self._widen_behind(tensor)
        for node in self._graph.nodes():
            if self._keeps_types(node):
                self._narrow_before(node, fixed)
        for position, tensor in enumerate(self._graph.gs.outputs):
            if id(tensor) not in fixed and self._is_narrow(tensor):
                self._narrow_output(position)
                fixed[id(self._graph.gs.outputs[position])] = self._graph.gs.outputs[position]
        self._convert(fixed)
        return self._result

    def _has_source(self) -> bool:
        """Whether any value of the narrow type enters the model: declared, stored, or asked for by an attribute."""
        graph = self._graph
        return any(self._is_narrow(graph.tensor(name)) for name in graph.tensor_names()) or any(
            node.attrs.get(key) == self._narrow_type or self._narrow_values(node.attrs.get("value"))
            for node in graph.nodes()
            for key in _TYPE_ATTRIBUTES
            if node.attrs
        )

    def _narrow_values(self, value: Any) -> bool:
        return isinstance(value, np.ndarray | Constant) and value.dtype == self._narrow

    def _is_narrow(self, tensor: Any) -> bool:
        return bool(tensor.name) and self._graph.dtype(tensor) == self._narrow

    def _keeps_types(self, node: Node) -> bool:
        return bool(node.domain) or node.op in _BIT_PATTERN_OPS

    def _fixed_tensors(self) -> dict[int, Any]:
        """The tensors that stay narrow, by identity."""
        graph = self._graph
        fixed = [*graph.gs.inputs, *(c for c in graph.constants() if c.scope and c.name in c.scope.overridable)]
        outputs = {id(tensor) for tensor in graph.gs.outputs}
        inner_outputs = {id(tensor) for scope in graph.scopes()[1:] for tensor in scope.outputs}
        for node in graph.nodes():
            if self._keeps_types(node):
                fixed.extend(node.outputs)
            elif node.op == "Cast" and id(node.outputs[0]) not in inner_outputs:
                made = node.outputs[0]
                readers = [use.node for use in graph.consumers(made)]
                if all(map(self._keeps_types, readers)) and (readers or id(made) in outputs):
                    fixed.append(made)
        return {id(tensor): tensor for tensor in fixed if self._is_narrow(tensor)}

    def _widen_behind(self, tensor: Any) -> None:
        """Let those who compute with a narrow tensor read a float32 copy of it."""
        uses = [
            use for use in self._graph.consumers(tensor) if use.node.op != "Cast" and not self._keeps_types(use.node)
        ]
        inner = [scope for scope in self._graph.scopes()[1:] if any(tensor is output for output in scope.outputs)]
        if not uses and not inner:
            return
        node = self._cast(tensor, uses, TensorProto.FLOAT, np.dtype(np.float32))
        for scope in inner:
            scope.outputs = [node.outputs[0] if output is tensor else output for output in scope.outputs]
        self._graph.origins.tensor_became(tensor.name, node.outputs[0].name)
        self._result.changed.append(node_line(node, f"'{tensor.name}' is converted to float32"))

    def _narrow_before(self, node: Node, fixed: dict[int, Any]) -> None:
        """Give a node that keeps its types the narrow inputs that it was made for."""
        for port, tensor in enumerate(node.inputs):
            if self._is_narrow(tensor) and id(tensor) not in fixed:
                cast = self._cast(tensor, [Use(node, port)], self._narrow_type, self._narrow)
                fixed[id(cast.outputs[0])] = cast.outputs[0]
                self._result.changed.append(node_line(cast, f"'{tensor.name}' is converted for node '{node.name}'"))

    def _cast(self, tensor: Any, uses: list[Use], element_type: int, dtype: np.dtype[Any]) -> Node:
        node = self._graph.insert_after(tensor, "Cast", attrs={"to": int(element_type)}, uses=uses)
        node.outputs[0].dtype = dtype
        return node

    def _narrow_output(self, position: int) -> None:
        """Put a Cast before an output of the model, which keeps its name."""
        graph, tensor = self._graph, self._graph.gs.outputs[position]
        name = tensor.name
        carrier = graph.add_variable(f"{name}_narrow", self._narrow, tensor.shape)
        graph.gs.outputs[position] = carrier
        graph.rename(tensor, f"{name}_float32")
        graph.rename(carrier, name, claim=False)
        node = graph.add_node("Cast", [tensor], [carrier], attrs={"to": self._narrow_type}, name=f"{name}_Cast")
        self._result.changed.append(node_line(node, f"'{tensor.name}' is converted back for the output '{name}'"))

    def _convert(self, fixed: dict[int, Any]) -> None:
        """Make float32 out of every narrow tensor that is not fixed, and of every attribute that asks for the type."""
        graph = self._graph
        for constant in graph.constants():
            if self._is_narrow(constant) and id(constant) not in fixed:
                constant.values = _widened(constant._values, self._memory)
                self._result.changed.append(f"initializer '{constant.name}': converted to float32")
        for node in graph.nodes():
            converted = not self._keeps_types(node) and not (node.op == "Cast" and id(node.outputs[0]) in fixed)
            if converted and self._convert_attributes(node):
                self._result.changed.append(node_line(node, "computes in float32"))
            inner = [tensor for body in bodies(node) for tensor in body.inputs]
            for tensor in [*node.outputs, *inner]:
                if id(tensor) not in fixed:
                    self._convert_variable(tensor)

    def _convert_variable(self, tensor: Any) -> None:
        if self._is_narrow(tensor):
            tensor.dtype = np.dtype(np.float32)
        elif tensor.type != "tensor_type":
            tensor.info = _retyped(tensor.info, self._narrow_type) or tensor.info

    def _convert_attributes(self, node: Node) -> bool:
        changed = False
        for key, value in node.attrs.items():
            if key in _TYPE_ATTRIBUTES and value == self._narrow_type:
                node.attrs[key] = int(TensorProto.FLOAT)
                changed = True
            elif self._narrow_values(value):
                node.attrs[key] = np.asarray(loaded(_widened(getattr(value, "_values", value), self._memory)))
                changed = True
        return changed


def _widened(held: np.ndarray | LazyValues, memory: SpareMemory) -> np.ndarray | LazyValues:
    """The same numbers in float32, which holds all of bfloat16 and float16; large ones are converted when read."""
    if held.nbytes < LARGE_BYTES:
        return in_float32(loaded(held))
    return DeferredValues(held.shape, np.dtype(np.float32), partial(_as_float32, held, memory))


def _as_float32(held: np.ndarray | LazyValues, memory: SpareMemory) -> np.ndarray:
    values = loaded(held)
    found = in_float32(values, memory)
    let_go(values)
    return found


def _retyped(info: onnx.ValueInfoProto | None, narrow_type: int) -> onnx.ValueInfoProto | None:
    """A declaration with float32 in place of the narrow type at any depth; None when it does not name that type."""
    if info is None:
        return None
    changed = onnx.ValueInfoProto()
    changed.CopyFrom(info)
    part: Any = changed.type
    while part.WhichOneof("value") in ("sequence_type", "optional_type", "map_type"):
        kind = part.WhichOneof("value")
        part = part.map_type.value_type if kind == "map_type" else getattr(part, kind).elem_type
    if part.WhichOneof("value") != "tensor_type" or part.tensor_type.elem_type != narrow_type:
        return None
    part.tensor_type.elem_type = TensorProto.FLOAT
    return changed
