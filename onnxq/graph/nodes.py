"""Nodes and tensors: graphsurgeon's classes with identity comparison and room for what graphsurgeon drops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from onnxq.graph.values import LazyValues


class Node(gs.Node):  # type: ignore[misc]
    """An operation. Compared by identity: graphsurgeon compares contents, which costs time and confuses twins."""

    def __init__(
        self,
        op: str,
        name: str = "",
        attrs: Mapping[str, Any] | None = None,
        inputs: Sequence[gs.Tensor] = (),
        outputs: Sequence[gs.Tensor] = (),
        domain: str = "",
    ) -> None:
        super().__init__(op, name, dict(attrs or {}), list(inputs), list(outputs), domain)
        self.doc_string = ""
        self.overload = ""
        self.metadata: dict[str, str] = {}
        self.attr_types: dict[str, int] = {}
        self.device_configurations: list[Any] = []

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def copy(self, inputs: Any = None, outputs: Any = None, tensor_map: Any = None) -> Node:
        raise TypeError("copy the whole graph with onnxq.Graph.copy(); a single node shares its tensors")


class Variable(gs.Variable):  # type: ignore[misc]
    """A tensor known at run time only. `info` is the declaration it was read with, kept while it still holds."""

    def __init__(self, name: str, dtype: Any = None, shape: Any = None, info: onnx.ValueInfoProto | None = None) -> None:
        super().__init__(name, dtype, shape)
        self.info = info

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Constant(gs.Constant):  # type: ignore[misc]
    """A tensor with known values. `scope` is the graph whose initializer it is; None means the main graph."""

    def __init__(self, name: str, values: np.ndarray | LazyValues, scope: gs.Graph | None = None) -> None:
        super().__init__(name, values)
        self.scope = scope

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Use(NamedTuple):
    """One place where a tensor is read: input number `port` of `node`."""

    node: gs.Node
    port: int


def bodies(node: gs.Node) -> list[gs.Graph]:
    """The graphs in a node's attributes (branches of an If, bodies of Loop and Scan)."""
    found = []
    for value in node.attrs.values():
        if isinstance(value, gs.Graph):
            found.append(value)
        elif isinstance(value, list) and value and isinstance(value[0], gs.Graph):
            found.extend(value)
    return found
