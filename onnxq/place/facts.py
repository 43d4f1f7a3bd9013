"""What placement knows about a node: the answers to a rule's questions."""

from __future__ import annotations

from typing import Any

from onnxq.graph import Graph, Node
from onnxq.graph.attributes import AttributeValues
from onnxq.types import OpRule

FLOAT_TYPES = ("float32", "float16", "bfloat16", "float64")
_NORMALIZATIONS = ("LayerNormalization", "LayerNorm", "RMSNormalization", "RMSNorm", "SimplifiedLayerNormalization")
"""Operators, and units of small ones."""


class Facts:
    """One node as rules see it (implements `onnxq.types.NodeFacts`)."""

    __slots__ = ("_graph", "node")

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph = graph
        self.node = node

    @property
    def op(self) -> str:
        return str(self.node.op) if not self.node.domain else f"{self.node.domain}.{self.node.op}"

    @property
    def attrs(self) -> AttributeValues:
        attrs: AttributeValues = self.node.attrs
        return attrs

    @property
    def input_count(self) -> int:
        return len(self.node.inputs)

    def has(self, port: int) -> bool:
        """Whether the optional input at `port` is given."""
        return port < len(self.node.inputs) and bool(self.node.inputs[port].name)

    def shape(self, port: int) -> tuple[int | None, ...] | None:
        return self._known(self.node.inputs[port].shape) if self.has(port) else None

    def output_shape(self) -> tuple[int | None, ...] | None:
        return self._known(self.node.outputs[0].shape)

    def output_dtype(self) -> str | None:
        kind = self._graph.dtype(self.node.outputs[0])
        return None if kind is None else kind.name

    def is_constant(self, port: int) -> bool:
        return self.has(port) and self._graph.is_constant(self.node.inputs[port])

    def scalar(self, port: int) -> float | None:
        """The value of a constant with one element; None for anything else, an omitted input included."""
        if not self.is_constant(port):
            return None
        values = self._graph.values(self.node.inputs[port])
        return float(values.reshape(-1)[0]) if values.size == 1 else None

    def dtype(self, port: int) -> str | None:
        kind = self._graph.dtype(self.node.inputs[port]) if self.has(port) else None
        return None if kind is None else kind.name

    def made_by(self, port: int) -> str | None:
        """The operator that computes the input at `port`; None for inputs of the graph, constants and omitted ones."""
        source = self._graph.producer(self.node.inputs[port]) if self.has(port) else None
        return None if source is None or source.domain else str(source.op)

    def made_of_constants(self, port: int) -> bool:
        """Whether the input at `port` is made by a node that reads constants alone."""
        source = self._graph.producer(self.node.inputs[port]) if self.has(port) else None
        return source is not None and all(self._graph.is_constant(tensor) for tensor in source.inputs if tensor.name)

    def read_by(self) -> tuple[str, ...]:
        """Operator and port of all that read the first output ("MatMul:1"), and "output" where the model returns it."""
        made = self.node.outputs[0]
        readers = [f"{use.node.op}:{use.port}" for use in self._graph.consumers(made)]
        return (*readers, *(["output"] if self._graph.is_output(made) else []))

    def is_normalized(self) -> bool:
        """Whether a LayerNorm or an RMSNorm, as one operator or in small ones, reads the first output."""
        readers = [use.node for use in self._graph.consumers(self.node.outputs[0])]
        return any(Facts(self._graph, reader).normalizes() for reader in readers)

    def normalizes(self) -> bool:
        """Whether it is a LayerNorm or an RMSNorm, or one of the small operators of such."""
        unit = self._graph.units.of(self.node.name)
        return (self.node.op if unit is None else unit.kind) in _NORMALIZATIONS

    def activation_ports(self, rule: OpRule) -> list[int]:
        """Ports read as activations: the rule's, and the weight port when its tensor is computed at run time."""
        if rule.inputs is None:
            return [p for p in range(self.input_count) if p not in (rule.weight, rule.bias)]
        ports = [p for p in rule.inputs if p < self.input_count]
        if rule.weight is not None and self.has(rule.weight) and not self.is_constant(rule.weight):
            ports.append(rule.weight)
        return ports

    def data_tensors(self, ports: tuple[int, ...] | None) -> list[str]:
        """The computed tensors at these ports; None means all of them."""
        chosen = range(self.input_count) if ports is None else ports
        return [self.node.inputs[p].name for p in chosen if self.has(p) and not self.is_constant(p)]

    def moved_outputs(self) -> list[Any]:
        """The outputs that hold moved values: all float ones (MaxPool also gives indices)."""
        kinds = [(tensor, self._graph.dtype(tensor)) for tensor in self.node.outputs if tensor.name]
        return [tensor for tensor, kind in kinds if kind is None or kind.name in FLOAT_TYPES]

    @staticmethod
    def _known(shape: Any) -> tuple[int | None, ...] | None:
        return None if shape is None else tuple(dim if isinstance(dim, int) else None for dim in shape)
