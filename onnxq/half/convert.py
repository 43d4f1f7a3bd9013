"""A graph that computes in half precision where a plan says so, in half-precision types or by rounding.

`to_half` changes types. A tensor has the type of the node that makes it; where somebody else needs the other one, a
Cast stands, one for each tensor and type. With half-precision scales (`HalfRest.scales`) no Cast stands at a quantizer:
QuantizeLinear takes what comes with a scale of its type, DequantizeLinear gives what is read, and gets a twin where
both types are read. Weights in front of such a pair are stored as the numbers that they are quantized to, rounded, so
that the rounding moves none of them to another step.

`round_to_half` leaves all types and rounds what the other graph would hold in half precision: for runtimes without
kernels for it, and to see what it costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
from onnx import TensorProto

from onnxq.graph import Constant, DeferredValues, Graph, Node, Use, collector_paused
from onnxq.half.kinds import HalfKind, half_kind
from onnxq.half.ports import TYPELESS, Ports, half_ports, is_float32
from onnxq.numerics import fake_quantize
from onnxq.types import QParams
from onnxq.types.rest import RestPlan

Wanted = Literal["half", "float32", "any"]
_FLOAT32 = np.dtype(np.float32)


def to_half(graph: Graph, rest: RestPlan, weights: Mapping[str, QParams]) -> None:
    """Give the nodes of the plan half-precision types, in place; `weights` has the parameters of pairs on constants."""
    graph.infer_shapes()
    with collector_paused():
        _Types(graph, rest, weights).write()


def round_to_half(graph: Graph, rest: RestPlan) -> None:
    """Round what those nodes read and make, in place; all types stay."""
    graph.infer_shapes()
    with collector_paused():
        _Rounding(graph, rest).write()


class _Regions:
    """Which ports of a graph are half precision, following a plan."""

    def __init__(self, graph: Graph, rest: RestPlan) -> None:
        self.graph, self.rest, self.kind = graph, rest, half_kind(rest.dtype)
        wanted = set(rest.half)
        self.ports: dict[str, Ports] = {}
        for node in graph.nodes():
            if node.name in wanted and graph.scope_of(node) is graph.gs:
                ports = half_ports(graph, node, self.kind, graph.opset)
                if ports is not None:
                    self.ports[str(node.name)] = ports

    def made_half(self, tensor: Any) -> bool:
        """Whether a node of the plan makes the tensor in half precision."""
        node = self.graph.producer(tensor)
        ports = None if node is None else self.ports.get(str(node.name))
        return node is not None and ports is not None and _port(node.outputs, tensor) in ports.outputs

    def wanted(self, use: Use) -> Wanted:
        ports = self.ports.get(str(use.node.name))
        if ports is not None:
            return "half" if use.port in ports.inputs else "float32"
        if use.node.op in TYPELESS or use.node.op == "Cast":
            return "any"
        return "any" if self.rest.scales and use.node.op == "QuantizeLinear" and use.port == 0 else "float32"

    def half_uses(self, tensor: Any) -> list[Use]:
        return [use for use in self.graph.consumers(tensor) if self.wanted(use) == "half"]


class _Types(_Regions):
    def __init__(self, graph: Graph, rest: RestPlan, weights: Mapping[str, QParams]) -> None:
        super().__init__(graph, rest)
        self._weights = weights
        self._copies: dict[str, Constant] = {}

    def write(self) -> None:
        graph = self.graph
        made = [tensor for node in graph.nodes() for tensor in node.outputs if self.made_half(tensor)]
        pairs = [node for node in graph.nodes("DequantizeLinear") if self.rest.scales]
        for node in pairs:
            self._dequantize(node)
        for constant in list(graph.constants()):
            if is_float32(graph, constant):
                self._read_copy(constant, self.half_uses(constant))
        for name in self.ports:
            self._retype(graph.node(name))
        half = {id(tensor): tensor for tensor in made}
        half |= {id(node.outputs[0]): node.outputs[0] for node in pairs if self._is_half(node.outputs[0])}
        for tensor in half.values():
            tensor.dtype = self.kind.dtype
        for tensor in half.values():
            self._widen_for_others(tensor)
        for tensor in [*graph.gs.inputs, *(t for node in graph.nodes() for t in node.outputs)]:
            if id(tensor) not in half and is_float32(graph, tensor) and not graph.is_constant(tensor):
                self._narrow(tensor)
        for node in graph.nodes("QuantizeLinear") if self.rest.scales else ():
            self._quantize(node)
        self._drop_casts()
        graph.remove_unused_constants()

    def _is_half(self, tensor: Any) -> bool:
        return bool(self.graph.dtype(tensor) == self.kind.dtype)

    def _retype(self, node: Node) -> None:
        """Attributes that say a type, or hold a value of it."""
        if node.op == "Cast":
            node.attrs["to"] = int(self.kind.element_type)
        elif node.op == "ConstantOfShape":
            held = node.attrs.get("value")
            values = np.zeros(1, np.float32) if held is None else np.asarray(getattr(held, "values", held))
            node.attrs["value"] = Constant("", values.astype(self.kind.dtype))

    # ---- quantizers with scales of the type they compute in -------------------------------------------------------

    def _dequantize(self, node: Node) -> None:
        """Half precision where somebody reads it so; a twin in float32 where somebody else needs that."""
        graph, made, scale = self.graph, node.outputs[0], node.inputs[1]
        if not (is_float32(graph, made) and is_float32(graph, scale) and graph.is_constant(scale)):
            return  # scales of two levels, and powers of two in a type of their own, give float32
        uses = {"half": [], "float32": [], "any": []}  # type: dict[str, list[Use]]
        for use in graph.consumers(made):
            uses[self.wanted(use)].append(use)
        if not uses["half"]:
            return
        if uses["float32"] or graph.is_output(made):
            twin = graph.add_variable(f"{made.name}_{self.rest.dtype}", self.kind.dtype, made.shape)
            scope = graph.scope_of(node)
            inputs = [node.inputs[0], self._copy(node.inputs[1]), *node.inputs[2:]]
            name = f"{node.name}_{self.rest.dtype}"
            graph.add_node("DequantizeLinear", inputs, [twin], attrs=dict(node.attrs), name=name, scope=scope)
            graph.redirect(made, twin, uses=uses["half"])
        else:
            node.inputs[1] = self._copy(node.inputs[1])
            made.dtype = self.kind.dtype

    def _quantize(self, node: Node) -> None:
        """The scale has the type of what comes; constants come in the type in which they are read afterwards."""
        graph, source = self.graph, node.inputs[0]
        if graph.is_constant(source) and is_float32(graph, source):
            readers = [use.node for use in graph.consumers(node.outputs[0])]
            parameters = self._weights.get(str(source.name))
            if parameters is None or not all(self._is_half(reader.outputs[0]) for reader in readers):
                return
            node.inputs[0] = source = self._weight(source, parameters)
        if self._is_half(source):
            node.inputs[1] = self._copy(node.inputs[1])

    def _weight(self, constant: Any, parameters: QParams) -> Constant:
        """The numbers that a weight is quantized to, in half precision."""
        graph, kind = self.graph, self.kind

        def compute() -> np.ndarray:
            return fake_quantize(graph.values(constant).astype(np.float32), parameters).astype(kind.dtype)

        values = DeferredValues(tuple(constant.shape), kind.dtype, compute)
        made = graph.add_constant(f"{constant.name}_{kind.name}", values, scope=graph.home_of(constant))
        graph.origins.tensor_became(str(constant.name), made.name)
        return made

    # ---- constants and Casts ---------------------------------------------------------------------------------------

    def _copy(self, constant: Any) -> Constant:
        """The constant in half precision, once for all who read it so."""
        graph, kind = self.graph, self.kind
        if constant.name not in self._copies:
            values = DeferredValues(
                tuple(constant.shape), kind.dtype, lambda: graph.values(constant).astype(kind.dtype)
            )
            home = graph.home_of(constant)
            self._copies[constant.name] = graph.add_constant(f"{constant.name}_{kind.name}", values, scope=home)
            graph.origins.tensor_became(str(constant.name), self._copies[constant.name].name)
        return self._copies[constant.name]

    def _read_copy(self, constant: Any, uses: Iterable[Use]) -> None:
        for node, port in uses:
            node.inputs[port] = self._copy(constant)

    def _narrow(self, tensor: Any) -> None:
        uses = self.half_uses(tensor)
        if uses:
            _cast(self.graph, tensor, uses, self.kind.element_type, self.kind.dtype)

    def _widen_for_others(self, tensor: Any) -> None:
        """A Cast for readers of float32, and for an output of the model, which keeps its type and name."""
        graph = self.graph
        uses = [use for use in graph.consumers(tensor) if self.wanted(use) == "float32"]
        if any(tensor is output for output in graph.gs.outputs):
            node = graph.insert_after(tensor, "Cast", attrs={"to": int(TensorProto.FLOAT)}, uses=uses)
            node.outputs[0].dtype = _FLOAT32
            graph.take_over_outputs(tensor, node.outputs[0])
        elif uses:
            _cast(graph, tensor, uses, TensorProto.FLOAT, _FLOAT32)

    def _drop_casts(self) -> None:
        """Casts from a type to itself, which a model of half precision has at its inputs, do nothing now."""
        graph = self.graph
        for node in graph.nodes("Cast"):
            source, made = node.inputs[0], node.outputs[0]
            same = self._is_half(source) and node.attrs["to"] == self.kind.element_type
            if same and graph.scope_of(node) is graph.gs and not graph.is_output(made):
                graph.redirect(made, source, uses=graph.consumers(made))
                graph.remove(node)


class _Rounding(_Regions):
    def write(self) -> None:
        graph = self.graph
        made = [tensor for node in graph.nodes() for tensor in node.outputs if self.made_half(tensor)]
        known = {id(tensor) for tensor in made}
        read = [*graph.gs.inputs, *(t for node in graph.nodes() for t in node.outputs if id(t) not in known)]
        for constant in list(graph.constants()):
            uses = self.half_uses(constant) if is_float32(graph, constant) else []
            if uses:
                rounded = self._rounded(constant)
                for node, port in uses:
                    node.inputs[port] = rounded
        for tensor in read:
            uses = self.half_uses(tensor) if is_float32(graph, tensor) and not graph.is_constant(tensor) else []
            if uses:
                self._round(tensor, uses)
        for tensor in made:
            self._round(tensor, None)
        graph.remove_unused_constants()

    def _rounded(self, constant: Any) -> Constant:
        graph, dtype = self.graph, self.kind.dtype
        values = DeferredValues(
            tuple(constant.shape), _FLOAT32, lambda: graph.values(constant).astype(dtype).astype(np.float32)
        )
        return graph.add_constant(f"{constant.name}_rounded", values, scope=graph.home_of(constant))

    def _round(self, tensor: Any, uses: list[Use] | None) -> None:
        down = self.graph.insert_after(tensor, "Cast", attrs={"to": int(self.kind.element_type)}, uses=uses)
        up = self.graph.insert_after(down.outputs[0], "Cast", attrs={"to": int(TensorProto.FLOAT)}, uses=None)
        down.outputs[0].dtype, up.outputs[0].dtype = self.kind.dtype, _FLOAT32


def _cast(graph: Graph, tensor: Any, uses: list[Use], element_type: int, dtype: np.dtype[Any]) -> None:
    node = graph.insert_after(tensor, "Cast", attrs={"to": int(element_type)}, uses=uses)
    node.outputs[0].dtype = dtype


def _port(tensors: list[Any], tensor: Any) -> int:
    return next(port for port, one in enumerate(tensors) if one is tensor)


__all__ = ["HalfKind", "round_to_half", "to_half"]
