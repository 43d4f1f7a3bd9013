"""Nodes, tensors and scopes: graphsurgeon's classes with identity comparison and room for what graphsurgeon drops.

The constructors fill `__dict__` directly: graphsurgeon's attribute hooks are for later edits, and cost more than all
the rest of reading a large model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.util.misc import SynchronizedList

from onnxq.graph.attributes import Attributes, AttributeValues
from onnxq.graph.element_types import numpy_dtype
from onnxq.graph.values import LazyValues, load_values


class Node(gs.Node):  # type: ignore[misc]
    """An operation. Compared by identity: graphsurgeon compares contents, which costs time and confuses twins."""

    doc_string: str
    overload: str
    metadata: dict[str, str]
    attr_types: dict[str, int]
    attr_docs: dict[str, str]
    device_configurations: list[Any]

    def __init__(
        self,
        op: str,
        name: str = "",
        attrs: AttributeValues | None = None,
        inputs: Sequence[gs.Tensor] = (),
        outputs: Sequence[gs.Tensor] = (),
        domain: str = "",
    ) -> None:
        own = self.__dict__
        own.update(_node_extras())
        own["op"], own["name"], own["domain"] = op, name, domain
        own["attrs"] = Attributes(attrs) if attrs else Attributes()
        own["inputs"] = _linked(self, "outputs", inputs)
        own["outputs"] = _linked(self, "inputs", outputs)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def copy(self, inputs: Any = None, outputs: Any = None, tensor_map: Any = None) -> Node:
        raise TypeError("copy the whole graph with onnxq.Graph.copy(); a single node shares its tensors")


class Variable(gs.Variable):  # type: ignore[misc]
    """A tensor known at run time only. `info` is the declaration it was read with, kept while it still holds."""

    info: onnx.ValueInfoProto | None

    def __init__(
        self, name: str, dtype: Any = None, shape: Any = None, info: onnx.ValueInfoProto | None = None
    ) -> None:
        self.__dict__.update(
            name=name,
            inputs=_linked(self, "outputs"),
            outputs=_linked(self, "inputs"),
            dtype=dtype,
            shape=shape,
            type="tensor_type",
            info=info,
        )

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Constant(gs.Constant):  # type: ignore[misc]
    """A tensor with known values. `scope` is the graph whose initializer it is; None means the main graph.

    Reading `values` keeps the array in memory from then on; `Graph.values` does not.
    """

    scope: gs.Graph | None
    info: onnx.ValueInfoProto | None

    def __init__(self, name: str, values: np.ndarray | LazyValues, scope: gs.Graph | None = None) -> None:
        self.__dict__.update(
            name=name,
            inputs=_linked(self, "outputs"),
            outputs=_linked(self, "inputs"),
            _values=values,
            data_location=None,
            _export_dtype=None,
            scope=scope,
            info=None,
        )

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Scope(gs.Graph):  # type: ignore[misc]
    """The main graph or a body of If, Loop or Scan.

    initializers             by name, in the order of the file
    overridable              initializer declared as an input too -> (how many plain inputs before it, declaration)
    output_declarations      output name -> its declaration in the file
    quantization_annotation  as in the file, following renamed tensors
    """

    metadata: dict[str, str]
    initializers: dict[str, Constant]
    overridable: dict[str, tuple[int, onnx.ValueInfoProto]]
    output_declarations: dict[str, onnx.ValueInfoProto]
    quantization_annotation: list[onnx.TensorAnnotation]

    def __init__(self, name: str = "", doc_string: str = "", opset: int | None = None) -> None:
        super().__init__(name=name, doc_string=doc_string, opset=opset)
        self.__dict__.update(_scope_extras())

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Use(NamedTuple):
    """One place where a tensor is read: input number `port` of `node`."""

    node: gs.Node
    port: int


def bodies(node: gs.Node) -> list[gs.Graph]:
    """The graphs in a node's attributes (branches of an If, bodies of Loop and Scan)."""
    found: list[gs.Graph] = []
    if has_plain_attributes(node):
        return found
    for value in node.attrs.values():
        if isinstance(value, gs.Graph):
            found.append(value)
        elif type(value) is list and value and isinstance(value[0], gs.Graph):
            found.extend(value)
    return found


def has_plain_attributes(node: gs.Node) -> bool:
    """Whether numbers and texts are all that a node's attributes ever were: no graph and no tensor."""
    attrs = node.attrs
    return type(attrs) is Attributes and not attrs.may_have_graphs


def inner_nodes(node: gs.Node) -> list[gs.Node]:
    """Every node inside the bodies of `node`, at any depth."""
    found = []
    pending = bodies(node)
    while pending:
        body = pending.pop()
        found.extend(body.nodes)
        for inner in body.nodes:
            pending.extend(bodies(inner))
    return found


def adopt(item: gs.Node | gs.Tensor | gs.Graph) -> None:
    """Turn an object made with graphsurgeon itself into the class of this module, in place."""
    kind = type(item)
    if kind is gs.Node:
        item.__class__ = Node
        item.domain = item.domain or ""
        item.__dict__.update({**_node_extras(), **item.__dict__})
    elif kind is gs.Variable:
        item.__class__ = Variable
        item.__dict__.setdefault("info", None)
    elif kind is gs.Constant:
        item.__class__ = Constant
        item.__dict__.update({"scope": None, "info": None, "_export_dtype": None, **item.__dict__})
        if item._export_dtype is not None:  # graphsurgeon converts when it exports, onnxq writes what is there
            dtype = item._export_dtype
            item._values = load_values(item._values).astype(numpy_dtype(dtype) if isinstance(dtype, int) else dtype)
            item._export_dtype = None
    elif kind is gs.Graph:
        item.__class__ = Scope
        item.__dict__.update({**_scope_extras(), **item.__dict__})


def _linked(owner: gs.Node | gs.Tensor, far_side: str, members: Sequence[Any] = ()) -> SynchronizedList:
    """A list whose members list `owner` on their far side, filled without a call per member."""
    linked = SynchronizedList.__new__(SynchronizedList)
    linked.parent_obj, linked.field_name = owner, far_side
    if members:
        list.extend(linked, members)
        for member in members:
            list.append(member.__dict__[far_side], owner)
    return linked


def _node_extras() -> dict[str, object]:
    return {
        "doc_string": "",
        "overload": "",
        "metadata": {},
        "attr_types": {},
        "attr_docs": {},
        "device_configurations": [],
    }


def _scope_extras() -> dict[str, object]:
    return {
        "metadata": {},
        "initializers": {},
        "overridable": {},
        "output_declarations": {},
        "quantization_annotation": [],
    }
