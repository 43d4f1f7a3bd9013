"""Float ONNX operators behind a tensor: number formats write themselves with them where QuantizeLinear cannot say it.

The result is `onnxq.numerics.fake_quantize` bit for bit (`NumberFormat.operators`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.emit.tables import broadcast
from onnxq.emit.uses import uses_of
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, Use
from onnxq.graph.attributes import AttributeValues
from onnxq.types import Placement, QParams


def write_operators(
    graph: Graph, placement: Placement, parameters: QParams, all_readers: list[Use] | None = None
) -> None:
    """Let the tensor's readers read what its format makes of it.

    `all_readers` are those of the whole tensor, asked for before there were readers of onnxq's own.
    """
    source = graph.tensor(placement.tensor)
    readers = uses_of(graph, placement)
    if readers is None:
        readers = graph.consumers(placement.tensor) if all_readers is None else all_readers
    made = parameters.spec.format.operators(Arithmetic(graph, source), parameters)
    graph.redirect(source, made, uses=readers)
    if placement.edges is None:
        graph.take_over_outputs(source, made)


class Arithmetic:
    """Adds the operators for one tensor, in the scope that makes it (`Operators` of `onnxq.types.number_format`)."""

    def __init__(self, graph: Graph, source: Any) -> None:
        self.graph = graph
        self.source = source
        self._scope = graph.home_of(source)
        self.kind = graph.dtype(source) or np.dtype(np.float32)

    @property
    def opset(self) -> int:
        return self.graph.opset

    def spread(self, values: np.ndarray, parameters: QParams) -> np.ndarray:
        if np.ndim(values) == 0:
            return np.asarray(values)
        if self.source.shape is None:
            raise UnsupportedError(
                f"tensor '{self.source.name}' has an unknown rank, so that its scales along an axis cannot be "
                "simulated. Quantize it per tensor"
            )
        return broadcast(values, tuple(self.source.shape), parameters)

    def cast(self, tensor: Any, kind: np.dtype[Any]) -> Any:
        if self.graph.dtype(tensor) == kind:
            return tensor
        return self.add("Cast", [tensor], kind, {"to": kind})

    def constant(self, what: str, values: Any) -> Any:
        return self.graph.add_constant(f"{self.source.name}_{what}", np.asarray(values), scope=self._scope)

    def add(
        self,
        op: str,
        inputs: list[Any],
        kind: np.dtype[Any] | None = None,
        attrs: AttributeValues | None = None,
        *,
        shaped: bool = True,
        node: str | None = None,
        made: str | None = None,
    ) -> Any:
        name = self.source.name
        shape = self.source.shape if shaped else None
        result = self.graph.add_variable(f"{name}_{made or op}", kind or self.graph.dtype(inputs[0]), shape)
        self.graph.add_node(op, inputs, [result], attrs=attrs or {}, name=f"{name}_{node or op}", scope=self._scope)
        return result
