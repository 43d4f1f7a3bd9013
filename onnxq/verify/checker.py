"""The ONNX checker, without what it says against definitions that ONNX has retracted, or against the float model.

onnx 1.17 and later call the GroupNormalization of opset 18 deprecated, since its scale and bias were defined per group
by mistake. It has no other definition in opsets 18 to 20, onnxruntime runs it, and models have it.

onnxruntime also runs operators in the default domain that ONNX does not define (SimplifiedLayerNormalization, in all
language models of ONNX Runtime GenAI), and files whose outputs have no shape. What the checker refuses in the float
model as well says nothing about what was made of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import defs

from onnxq.graph import Graph, bodies
from onnxq.graph.store import store_skeleton
from onnxq.graph.write import node_to_proto
from onnxq.machine import machine_error, unreadable

RETRACTED = frozenset({"GroupNormalization"})
"""Operators of which a definition was retracted while opsets without another one are in use."""

_ELSEWHERE = "onnxq.elsewhere"
"""A domain that the checker has no definitions of, and therefore nothing against."""


@dataclass(frozen=True)
class Checked:
    """What the checker has against a file, and what of the file is refused in the float model as well."""

    refusals: tuple[str, ...] = ()
    inherited: tuple[str, ...] = ()


def check_file(path: Path, original: Graph | None = None) -> Checked:
    """Ask the checker about a file that was made of `original`; nothing for a file that is not there.

    A file that the machine does not let it read is a MachineError.
    """
    if not path.is_file():
        return Checked()
    refusal = _refusal(path)
    if refusal is None:
        return Checked()
    fault = unreadable([path])
    if fault is not None:
        raise machine_error(fault, f"{path} could not be checked")
    model = onnx.load(str(path), load_external_data=False)
    moved = _move_retracted(model)
    inherited = [] if original is None else [*_move_inherited(model, original), *_give_shapes(model, original)]
    if not moved and not inherited:
        return Checked((refusal,))
    twin = path.with_name(f".{path.name}.checked")  # beside the file, so that external data is found
    try:
        twin.write_bytes(model.SerializeToString())
        refusal = _refusal(twin)
    finally:
        twin.unlink(missing_ok=True)
    return Checked(() if refusal is None else (refusal,), tuple(inherited))


def _refusal(path: Path) -> str | None:
    try:
        onnx.checker.check_model(str(path))  # by path, so that external data is found
    except onnx.checker.ValidationError as error:
        return str(error)
    return None


def _move_inherited(model: onnx.ModelProto, original: Graph) -> Iterator[str]:
    """Put nodes of operators that the checker refuses in the float model too into a domain of their own."""
    before = _Context(original.header.ir_version, original.header.opset_import)
    protos = (node_to_proto(node, store_skeleton, str) for node in original.nodes() if not bodies(node))
    known = {_operator(node) for node in protos if before.refuses(node)}
    if not known:
        return
    now = _Context(model.ir_version, model.opset_import)
    moved: Counter[tuple[str, str]] = Counter()
    for node in _nodes(model.graph):
        if _operator(node) in known and now.refuses(node):
            moved[_operator(node)] += 1
            node.domain = _ELSEWHERE
    if moved:
        _import_elsewhere(model)
    for (domain, op), count in moved.items():
        yield (
            f"the ONNX checker refuses operator {op} of domain '{domain or 'ai.onnx'}' ({count} in the file), in the "
            "float model as well; onnxruntime takes it"
        )


class _Context:
    """The checker for single nodes, under the opsets of a model."""

    def __init__(self, ir_version: int, imports: object) -> None:
        self._context = onnx.checker.C.CheckerContext()
        self._context.ir_version = ir_version
        self._context.opset_imports = {entry.domain: entry.version for entry in imports}  # type: ignore[attr-defined]

    def refuses(self, node: onnx.NodeProto) -> bool:
        try:
            onnx.checker.check_node(node, self._context)
        except onnx.checker.ValidationError:
            return True
        return False


def _operator(node: onnx.NodeProto) -> tuple[str, str]:
    return ("" if node.domain == "ai.onnx" else node.domain, node.op_type)


def _give_shapes(model: onnx.ModelProto, original: Graph) -> Iterator[str]:
    """Declare some shape for outputs that have none in the float model either, which the checker demands."""
    for output in model.graph.output:
        tensor = output.type.tensor_type
        without = output.type.HasField("tensor_type") and not tensor.HasField("shape")
        if without and output.name in original.output_names and original.written_shape(output.name) is None:
            tensor.shape.SetInParent()
            yield f"output '{output.name}' is declared without a shape, as in the float model"


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those of bodies included; nodes that have bodies are not among them."""
    pending = [graph]
    while pending:
        for node in pending.pop().node:
            inner = [body for a in node.attribute for body in ([a.g] if a.HasField("g") else a.graphs)]
            pending.extend(inner)
            if not inner:
                yield node


def _move_retracted(model: onnx.ModelProto) -> bool:
    """Put nodes of retracted definitions into a domain of their own; whether there are any."""
    version = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)
    moved = False
    for node in _nodes(model.graph):
        if node.op_type in RETRACTED and node.domain in ("", "ai.onnx") and _is_deprecated(node.op_type, version):
            node.domain = _ELSEWHERE
            moved = True
    if moved:
        _import_elsewhere(model)
    return moved


def _import_elsewhere(model: onnx.ModelProto) -> None:
    if not any(entry.domain == _ELSEWHERE for entry in model.opset_import):
        model.opset_import.add(domain=_ELSEWHERE, version=1)


def _is_deprecated(op: str, version: int) -> bool:
    try:
        return bool(defs.get_schema(op, version, "").deprecated)
    except defs.SchemaError:
        return False
