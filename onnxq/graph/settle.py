"""Declared shapes held against those that follow from the inputs.

Files declare shapes of outputs and inner tensors that are not theirs: a rank that is out of date, sizes of another
export, one name for two different sizes. onnxruntime loads such a file, and takes dimensions of one name for equal when
it lets tensors share a buffer. So inside the graph counts what shape inference finds, and a name that it cannot derive
from an input is not used. What is declared is all there is where inference finds nothing, behind operators that it does
not know. Outputs are written as the user declares them, unless inference proves that wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set

import onnx
import onnx_graphsurgeon as gs

from onnxq.graph.declare import Dimensions, declared_type, set_dimensions
from onnxq.graph.graph import Graph, is_known
from onnxq.graph.nodes import Scope
from onnxq.graph.placeholders import without_names

Found = dict[str, Dimensions]
"""Tensor -> the shape that follows from the inputs."""


def settle_declarations(graph: Graph) -> None:
    """Put declared shapes of outputs and inner tensors right, once; what changes for the user goes to `remarks`."""
    if graph.is_settled:
        return
    graph.is_settled = True
    declared = [tensor for scope in graph.scopes() for tensor in _made(scope) if tensor.shape is not None]
    if not declared:
        return
    bare = _inferred(graph)
    found = {name: list(tensor.shape) for name, tensor in bare.items() if tensor.shape is not None}
    inputs = [tensor for scope in graph.scopes() for tensor in scope.inputs if tensor.shape is not None]
    names = {dim for tensor in graph.gs.inputs for dim in tensor.shape or () if isinstance(dim, str)}
    wrong = _contradicted([*inputs, *declared], found, names)
    for tensor in declared:
        shape = _settled(tensor.shape, found.get(tensor.name), names, wrong)
        if shape != list(tensor.shape):
            tensor.shape, tensor.info = shape, None
    for scope in graph.scopes():
        for name, info in scope.output_declarations.items():
            changed = _corrected(info, found.get(name), names, wrong)
            if changed is info:
                continue
            scope.output_declarations[name] = changed
            if scope is graph.gs:
                graph.remarks.append(
                    f"output '{name}' is declared as {_text(info)}, and is {_text(changed)} by its operators: the file "
                    "says so now"
                )
    _take_over(graph, bare, names)


def drop_names(graph: Graph, names: Collection[str]) -> None:
    """Leave dimensions of these names without one, at the inputs, at the outputs and inside."""
    for scope in graph.scopes():
        for tensor in (*scope.inputs, *_made(scope)):
            if tensor.shape is not None and any(dim in names for dim in tensor.shape):
                tensor.shape, tensor.info = [None if dim in names else dim for dim in tensor.shape], None
        for name, info in scope.output_declarations.items():
            scope.output_declarations[name] = without_names(info, names)


def _inferred(graph: Graph) -> dict[str, gs.Variable]:
    """The tensors as inference finds them without what is declared of their shapes."""
    bare = graph.copy()
    for scope in bare.scopes():
        scope.output_declarations.clear()
        for tensor in _made(scope):
            tensor.shape, tensor.info = None, None
    bare.infer_shapes()
    return {tensor.name: tensor for scope in bare.scopes() for tensor in _made(scope)}


def _take_over(graph: Graph, bare: Mapping[str, gs.Variable], names: Set[str]) -> None:
    """Keep what was inferred where it is all that there is to know: nobody has to infer it again."""
    made = [tensor for scope in graph.scopes() for tensor in _made(scope)]
    told = [bare[tensor.name] for tensor in made]
    if not all(is_known(tensor) and names >= {dim for dim in tensor.shape if isinstance(dim, str)} for tensor in told):
        return
    for tensor in made:
        if tensor.dtype is None and tensor.shape is None:
            tensor.dtype, tensor.shape = bare[tensor.name].dtype, list(bare[tensor.name].shape)


def _made(scope: Scope) -> Iterator[gs.Variable]:
    for node in scope.nodes:
        for tensor in node.outputs:
            if tensor.name and isinstance(tensor, gs.Variable) and tensor.type == "tensor_type":
                yield tensor


def _contradicted(tensors: Sequence[gs.Variable], found: Found, names: Collection[str]) -> set[str]:
    """Names of several dimensions of which one is known to have a size, or a name, of its own."""
    places = Counter(dim for tensor in tensors for dim in tensor.shape if isinstance(dim, str))
    wrong = set()
    for tensor in tensors:
        for old, new in zip(tensor.shape, found.get(tensor.name, ()), strict=False):
            known = isinstance(new, int) or new in names
            if isinstance(old, str) and places[old] > 1 and known and new != old:
                wrong.add(old)
    return wrong


def _settled(
    declared: Dimensions, found: Dimensions | None, names: Collection[str], wrong: Collection[str]
) -> Dimensions:
    """The shape inside the graph."""
    if found is None:
        return [None if dim in wrong else dim for dim in declared]
    if len(found) != len(declared):
        return found
    unproven = [dim if isinstance(dim, int) else None for dim in declared]
    pairs = zip(unproven, found, strict=True)
    return [new if isinstance(new, int) or new in names else old for old, new in pairs]


def _corrected(
    info: onnx.ValueInfoProto, found: Dimensions | None, names: Collection[str], wrong: Collection[str]
) -> onnx.ValueInfoProto:
    """The declaration of an output: itself, or a copy with what is known better."""
    shape = declared_type(info)[1] if info.type.WhichOneof("value") == "tensor_type" else None
    if shape is None:
        return info
    if found is None:
        right = [None if dim in wrong else dim for dim in shape]
    else:
        known = [dim if isinstance(dim, int) or dim in names else None for dim in found]
        right = (
            known if len(known) != len(shape) else [_better(*pair, wrong) for pair in zip(shape, known, strict=True)]
        )
    if right == shape:
        return info
    told = onnx.ValueInfoProto()
    told.CopyFrom(info)
    set_dimensions(told.type.tensor_type, right)
    return told


def _better(declared: int | str | None, known: int | str | None, wrong: Collection[str]) -> int | str | None:
    if declared in wrong or (isinstance(declared, int) and isinstance(known, int)):
        return known
    return declared


def _text(info: onnx.ValueInfoProto) -> str:
    shape = declared_type(info)[1] or []
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"
