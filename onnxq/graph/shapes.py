"""Shapes and element types of all tensors, without touching the weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import defs, shape_inference

from onnxq.errors import ModelError
from onnxq.graph.declare import declared_type
from onnxq.graph.element_types import numpy_dtype
from onnxq.graph.nodes import Scope, bodies
from onnxq.graph.save import skeleton
from onnxq.graph.shape_arithmetic import MOST as SHORT
from onnxq.graph.shape_arithmetic import fill_reshapes
from onnxq.graph.stand_ins import put_stand_ins, without_stand_ins
from onnxq.graph.values import load_values

_VARIADIC = defs.OpSchema.FormalParameterOption.Variadic


def infer_shapes(header: onnx.ModelProto, main: Scope) -> None:
    """Fill in dtype and shape where they are unknown; what the user declared stays as it is.

    Where inference stops at an operator it does not know, element types still follow from the operators behind it:
    a convolution whose weights are float32 reads and makes float32.
    """
    nodes = list(_all_nodes(main))
    unknown = [t for node in nodes for t in node.outputs if isinstance(t, gs.Variable) and t.shape is None]
    _infer(header, main)
    for _ in range(MOST_ROUNDS):
        reshaped = fill_reshapes(nodes)
        if not reshaped:
            break
        unknown = [tensor for tensor in unknown if id(tensor) not in reshaped]
        for tensor in unknown:  # what lies behind has got names for sizes that are known now
            tensor.shape = None
        _infer(header, main)
    versions = {entry.domain: entry.version for entry in header.opset_import}
    while _unify_types(main, versions):
        pass


MOST_ROUNDS = 4
"""Each brings the shapes behind one more Reshape that needs the sizes of its input; few files need two."""


def _infer(header: onnx.ModelProto, main: Scope) -> None:
    model = skeleton(header, main)
    put_stand_ins(model)
    try:
        follows_values = not (_may_make_long_rows(main) and _has_long_rows(_inferred(model, follow_values=False)))
        inferred = _inferred(model, follow_values=follows_values)
    except Exception as error:  # the C++ side raises classes that onnx does not export by one name
        raise ModelError(f"the shapes of the model cannot be inferred: {error}") from error
    _take_over(inferred.graph, main)


def _inferred(model: onnx.ModelProto, *, follow_values: bool) -> onnx.ModelProto:
    return shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=follow_values)


# ---- rows so long that onnx would spend hours and all memory on their values, one by one -----------------------------

LONG_ROW = 2**20
"""Elements from which a tensor of one dimension is no shape that could be followed."""

_MAKERS = frozenset(
    {"ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Reshape", "Resize", "Tile", "Upsample"}
    | {"BlackmanWindow", "HammingWindow", "HannWindow"}
)
"""Operators that make a long tensor of a few numbers."""


def _may_make_long_rows(main: Scope) -> bool:
    """Whether a declaration, or a number that one of the makers reads, is large enough for such a row."""
    if any(_is_long(tensor.shape) for tensor in main.inputs):
        return True
    read = (tensor for node in _all_nodes(main) if node.op in _MAKERS for tensor in node.inputs)
    return any(isinstance(tensor, gs.Constant) and _holds_large_number(tensor) for tensor in read)


def _holds_large_number(constant: gs.Constant) -> bool:
    held = constant._values
    if math.prod(held.shape) > SHORT or held.dtype.kind not in "iuf":
        return False
    return bool(np.any(np.abs(load_values(held).astype(np.float64)) >= LONG_ROW))


def _has_long_rows(model: onnx.ModelProto) -> bool:
    told = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    return any(_is_long([dim.dim_value for dim in info.type.tensor_type.shape.dim]) for info in told)


def _is_long(shape: Sequence[Any] | None) -> bool:
    return shape is not None and len(shape) == 1 and isinstance(shape[0], int) and shape[0] >= LONG_ROW


def _take_over(proto: onnx.GraphProto, scope: Scope) -> None:
    told = {info.name: info for infos in (proto.input, proto.value_info, proto.output) for info in infos}
    for tensor in scope.inputs:
        _fill(tensor, told)
    for node, node_proto in zip(scope.nodes, without_stand_ins(proto.node), strict=True):
        for tensor in node.outputs:
            _fill(tensor, told)
        inner = bodies(node)
        if inner:
            protos = [g for a in node_proto.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]
            for body, body_proto in zip(inner, protos, strict=True):
                _take_over(body_proto, body)


def _fill(tensor: gs.Tensor, told: dict[str, onnx.ValueInfoProto]) -> None:
    """Complete a tensor with what inference found, dimension by dimension."""
    if not isinstance(tensor, gs.Variable) or tensor.type != "tensor_type":
        return
    if tensor.dtype is not None and tensor.shape is not None and None not in tensor.shape:
        return
    info = told.get(tensor.name)
    kind = None if info is None else info.type.WhichOneof("value")
    if info is None or kind is None:
        return
    if kind != "tensor_type":
        tensor.type, tensor.info = kind, info
        return
    dtype, shape = declared_type(info)
    if tensor.dtype is None:
        tensor.dtype = dtype
    if tensor.shape is None:
        tensor.shape = shape
    elif shape is not None and len(shape) == len(tensor.shape):
        tensor.shape = [new if old is None else old for old, new in zip(tensor.shape, shape, strict=True)]


# ---- element types behind operators that inference does not know -----------------------------------------------------


@dataclass(frozen=True)
class _TypeWords:
    """The type words of an operator's inputs and outputs, such as "T" or "tensor(int64)".

    mixed   words of parameters that take several tensors of different types
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    is_variadic: bool
    mixed: frozenset[str]

    def of(self, node: gs.Node) -> list[tuple[gs.Tensor, str]]:
        """Each tensor of a node with its word; the last input word of a variadic operator repeats."""
        more = len(node.inputs) - len(self.inputs) if self.is_variadic else 0
        inputs = self.inputs + self.inputs[-1:] * more
        return [*zip(node.inputs, inputs, strict=False), *zip(node.outputs, self.outputs, strict=False)]


@functools.cache
def _type_words(op: str, domain: str, version: int) -> _TypeWords | None:
    try:
        schema = defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None
    mixed = frozenset(p.type_str for p in (*schema.inputs, *schema.outputs) if not p.is_homogeneous)
    is_variadic = bool(schema.inputs) and schema.inputs[-1].option == _VARIADIC
    return _TypeWords(
        tuple(p.type_str for p in schema.inputs), tuple(p.type_str for p in schema.outputs), is_variadic, mixed
    )


def _unify_types(main: Scope, versions: dict[str, int]) -> bool:
    """One walk forwards and one backwards in which tensors of one type word learn from each other; True on news."""
    nodes = list(_all_nodes(main))
    missing = [n for n in nodes if any(_untyped(t) for t in (*n.inputs, *n.outputs))]
    changed = False
    for node in (*missing, *reversed(missing)):
        words = _type_words(node.op, node.domain, versions.get(node.domain, 1))
        if words is None:
            continue
        pairs = words.of(node)
        known = {word: t.dtype for t, word in pairs if t.name and t.dtype is not None and word not in words.mixed}
        for tensor, word in pairs:
            if _untyped(tensor):
                dtype = known[word] if word in known else _only_type(word)
                if dtype is not None:
                    tensor.dtype = dtype
                    changed = True
    return changed


def _all_nodes(main: Scope) -> Iterator[gs.Node]:
    pending = [main]
    while pending:
        scope = pending.pop()
        yield from scope.nodes
        pending.extend(body for node in scope.nodes for body in bodies(node))


def _untyped(tensor: gs.Tensor) -> bool:
    return (
        bool(tensor.name) and isinstance(tensor, gs.Variable) and tensor.dtype is None and tensor.type == "tensor_type"
    )


@functools.cache
def _only_type(word: str) -> np.dtype[Any] | None:
    """The element type of a word that is a type itself: "tensor(bool)"."""
    if not word.startswith("tensor("):
        return None
    return numpy_dtype(int(onnx.TensorProto.DataType.Value(word[len("tensor(") : -1].upper())))
