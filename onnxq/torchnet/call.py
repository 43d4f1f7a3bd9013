"""Call: one node as its builder sees it: attributes, constant inputs, bodies, and the mode of the net."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxq.errors import ModelError, UnsupportedError
from onnxq.graph import Constant, Graph, Node
from onnxq.torchnet.registry import shown
from onnxq.torchnet.values import Value, as_ints, from_numpy

if TYPE_CHECKING:
    from onnxq.graph.nodes import Scope

_MISSING = object()


@dataclass
class Mode:
    """How a net runs now; its operators look at it.

    training         between `net.train()` and `net.eval()`
    of_nodes         the same for single nodes, where a module of the network was told otherwise
    live_statistics  batch norms use the statistics of the batch and update their own, in training
    recomputing      a part of the net runs again for its gradients: nothing may be updated a second time
    """

    training: bool = False
    of_nodes: dict[str, bool] = field(default_factory=dict)
    live_statistics: bool = False
    recomputing: bool = False


class Body(Protocol):
    """The graph in an attribute of If, Loop or Scan, ready to run."""

    input_count: int
    output_count: int

    def __call__(self, inputs: Sequence[Value]) -> list[Value]: ...


class Call:
    """A node: what a builder needs to know to make its torch code.

    Values that are known when the net is made (`constant`) are settings then, such as the shape of a Reshape: they need
    not be read at every step, and are not trained.
    """

    def __init__(
        self,
        graph: Graph,
        types: Graph,
        node: Node,
        version: int,
        mode: Mode,
        compile_body: Callable[[Scope], Body],
        constant_inputs: Callable[[str], bool],
    ) -> None:
        self.node = node
        self.name: str = node.name
        self.op: str = node.op
        self.domain: str = node.domain or ""
        self.version = version
        self.mode = mode
        self.inputs: tuple[str, ...] = tuple(tensor.name for tensor in node.inputs)
        self.outputs: tuple[str, ...] = tuple(tensor.name for tensor in node.outputs)
        self.settings: set[int] = set()
        self._graph = graph
        self._types = types
        self._compile_body = compile_body
        self._is_constant = constant_inputs

    @property
    def training(self) -> bool:
        """Whether this node is in training now."""
        return self.mode.of_nodes.get(self.name, self.mode.training)

    # ---- attributes ----------------------------------------------------------------------------------------------

    def attribute(self, name: str, default: Any = _MISSING) -> Any:
        """An attribute as ONNX has it: int, float, str or a list of them; an error if it is missing without default."""
        value = self.node.attrs.get(name, default)
        if value is _MISSING:
            raise ModelError(f"{self} has no attribute '{name}', which it needs; the model is not valid ONNX")
        return value

    def has_attribute(self, name: str) -> bool:
        return name in self.node.attrs

    def tensor_attribute(self, name: str) -> Value:
        """The value of a tensor attribute."""
        constant = self.attribute(name)
        if not isinstance(constant, Constant):
            raise ModelError(f"attribute '{name}' of {self} is not a tensor; the model is not valid ONNX")
        return from_numpy(self._graph.values(constant))

    def body(self, name: str) -> Body:
        """The graph in attribute `name`, as a function of its inputs; what it reads from outside is found for it."""
        return self._compile_body(self.attribute(name))

    # ---- inputs and outputs --------------------------------------------------------------------------------------

    def has_input(self, port: int) -> bool:
        return port < len(self.inputs) and bool(self.inputs[port])

    def has_output(self, port: int) -> bool:
        """Whether anybody wants output number `port`."""
        return port < len(self.outputs) and bool(self.outputs[port])

    def constant(self, port: int) -> np.ndarray | None:
        """The values of an input that the model itself holds; None if it is left out or known only at run time."""
        if not self.has_input(port) or not self._is_constant(self.inputs[port]):
            return None
        self.settings.add(port)
        return self._graph.values(self.inputs[port])

    def constant_ints(self, port: int) -> list[int] | None:
        """`constant` as a list of integers."""
        values = self.constant(port)
        return None if values is None else as_ints(values)

    def ints(self, port: int) -> Callable[[Value], list[int]]:
        """A function that gives the integers of input `port` from its value at run time; free if they are known now."""
        known = self.constant_ints(port)
        if known is None:
            return as_ints
        fixed = list(known)
        return lambda value: fixed

    def keep_fixed(self, *ports: int) -> None:
        """Say that constants at these inputs are not trained, such as the statistics of a batch norm."""
        self.settings.update(ports)

    def element_type(self, port: int = 0) -> np.dtype[Any] | None:
        """numpy dtype of an input, as far as it was declared or inferred."""
        return self._types.dtype(self.inputs[port]) if self.has_input(port) else None

    def rank(self, port: int = 0) -> int | None:
        """The number of dimensions of an input, as far as it was declared or inferred."""
        shape = self._types.shape(self.inputs[port]) if self.has_input(port) else None
        return None if shape is None else len(shape)

    # ---- errors --------------------------------------------------------------------------------------------------

    def unsupported(self, what: str) -> UnsupportedError:
        """An error to raise for a variant of the operator that is not implemented."""
        return UnsupportedError(f"{self}: {what}")

    def __str__(self) -> str:
        return f"node '{self.name}' ({shown(self.domain, self.op)}, opset {self.version})"
