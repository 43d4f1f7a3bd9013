"""Local functions of a model, put in the place of the nodes that call them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import inliner, shape_inference

from onnxq.errors import ModelError
from onnxq.graph.signatures import DEFAULT_DOMAINS

MOST_NODES = 200_000
"""Nodes that calls of functions may become. Functions that call each other twice double with every level."""

MOST_LEVELS = 100
"""Functions that may call one another in a row: what the inliner of onnx follows."""

_Key = tuple[str, str, str]


def inline_functions(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """The same model without functions; refused where they call themselves, or would become too many nodes."""
    _check_size(model, where)
    try:
        if _mixes_opsets(model):  # the inliner converts a function only where it knows the types around it
            model = shape_inference.infer_shapes(model)
        return inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:  # the inliner reports everything as one of several C++ exceptions
        raise ModelError(f"the local functions of {where} cannot be inlined: {error}") from error


def _mixes_opsets(model: onnx.ModelProto) -> bool:
    """Whether a function is written for another version of the default operator set than the model."""
    own = _default_versions(model.opset_import)
    return any(version not in own for f in model.functions for version in _default_versions(f.opset_import))


def newer_functions_opset(model: onnx.ModelProto) -> int | None:
    """The newest opset that a function is written for where it is newer than the model's own, else None."""
    own = _default_versions(model.opset_import)
    newest = max((version for f in model.functions for version in _default_versions(f.opset_import)), default=0)
    return newest if own and newest > max(own) else None


def without_functions(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """The graph around the functions, with the types that their calls make as far as they can be told."""
    _check_size(model, where)  # shape inference follows every call, too
    try:
        model = shape_inference.infer_shapes(model)
    except Exception as error:  # the C++ side raises classes that onnx does not export by one name
        raise ModelError(f"the shapes of the model's functions cannot be inferred: {error}") from error
    model.ClearField("functions")
    return model


def _default_versions(imports: Iterable[onnx.OperatorSetIdProto]) -> list[int]:
    return [entry.version for entry in imports if entry.domain in DEFAULT_DOMAINS]


def _check_size(model: onnx.ModelProto, where: str) -> None:
    """Count what inlining makes before it is made."""
    functions = {(function.domain, function.name, function.overload): function for function in model.functions}
    if len(functions) < len(model.functions):
        twice = [key for key in functions if sum(_key(f) == key for f in model.functions) > 1]
        raise ModelError(f"{where} defines the local function '{twice[0][1]}' of domain '{twice[0][0]}' twice")
    calls = {key: [_called(node) for node in _nodes(function.node)] for key, function in functions.items()}
    sizes: dict[_Key, int] = {}
    levels: dict[_Key, int] = {}
    for key in _callees_first(calls, where):
        inner = [callee for callee in calls[key] if callee in sizes]
        sizes[key] = len(calls[key]) - len(inner) + sum(sizes[callee] for callee in inner)
        levels[key] = 1 + max((levels[callee] for callee in inner), default=0)
    called = [key for node in _nodes(model.graph.node) if (key := _called(node)) in sizes]
    total = sum(sizes[key] for key in called)
    if total > MOST_NODES:
        raise ModelError(
            f"the local functions of {where} would become {total:,} nodes where they are called, and onnxq follows "
            f"{MOST_NODES:,} at most. Functions that call others several times grow with every level; "
            "inline them in the exporter, or split the model"
        )
    depth = max((levels[key] for key in called), default=0)
    if depth > MOST_LEVELS:
        raise ModelError(
            f"the local functions of {where} call one another {depth:,} levels deep, and onnxq follows {MOST_LEVELS} "
            "at most; inline them in the exporter"
        )


def _callees_first(calls: dict[_Key, list[_Key]], where: str) -> Iterator[_Key]:
    """Every function behind those that it calls, without recursion: the chain may be as long as the file allows."""
    done: set[_Key] = set()
    for first in calls:
        path: dict[_Key, Iterator[_Key]] = {} if first in done else {first: iter(calls[first])}
        while path:
            key, rest = next(reversed(path.items()))
            callee = next((callee for callee in rest if callee in calls and callee not in done), None)
            if callee is None:
                path.popitem()
                done.add(key)
                yield key
            elif callee in path:
                names = [*list(path)[list(path).index(callee) :], callee]
                raise ModelError(
                    f"the local functions of {where} call themselves: {' -> '.join(name for _, name, _ in names)}. "
                    "ONNX does not allow recursion; write it as a Loop"
                )
            else:
                path[callee] = iter(calls[callee])


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes with those of their bodies."""
    pending = [iter(nodes)]
    while pending:
        for node in pending.pop():
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(iter(attribute.g.node))
                pending.extend(iter(body.node) for body in attribute.graphs)


def _called(node: onnx.NodeProto) -> _Key:
    return node.domain, node.op_type, node.overload


def _key(function: onnx.FunctionProto) -> _Key:
    return function.domain, function.name, function.overload
