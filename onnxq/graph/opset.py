"""Raise the opset of a graph, one opset at a time and node by node, and refuse by name what cannot be carried over.

A node is touched only where the definition of its operator changed its meaning: `opset_table` lists the changes that
do not concern existing nodes, `opset_rewrites` holds a rewrite for each of the others.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import onnx
import onnx_graphsurgeon as gs
from onnx import helper

from onnxq.errors import UnsupportedError
from onnxq.graph.opset_edit import Refusal
from onnxq.graph.opset_rewrites import REWRITES
from onnxq.graph.opset_table import FIRST_OPSET, LAST_OPSET, REFUSED, is_compatible
from onnxq.types.note import Note

if TYPE_CHECKING:
    from onnxq.graph.graph import Graph


def ir_version_for(opset: int) -> int:
    """The lowest IR version that allows an opset."""
    _check_known(opset)
    later = [known for domain, known in helper.OP_SET_ID_VERSION_MAP if domain == "ai.onnx" and known >= opset]
    return int(helper.OP_SET_ID_VERSION_MAP["ai.onnx", min(later)])


def raise_opset(graph: Graph, old: int, new: int) -> list[str]:
    """Rewrite nodes whose definition changed between `old` and `new`; one line for each rewrite.

    A node that cannot be carried over raises UnsupportedError, and all nodes are as they were before.
    """
    _check_known(new)
    if not _needs_rewriting(graph, old, new):
        return []
    graph.infer_shapes()  # rewrites ask for ranks and element types, and the nodes are all of one opset only now
    _rewrite(graph.copy(), old, new)  # a refusal halfway leaves the copy in pieces, not the graph
    return _rewrite(graph, old, new)


def _check_known(opset: int) -> None:
    newest = min(LAST_OPSET, onnx.defs.onnx_opset_version())
    if not 1 <= opset <= newest:
        raise UnsupportedError(
            f"opset {opset} is not known; onnxq with onnx {onnx.__version__} knows the opsets up to {newest}. "
            "Ask for one of these, or install a newer onnx"
        )


def _needs_rewriting(graph: Graph, old: int, new: int) -> bool:
    ops = {node.op for node in graph.nodes() if not node.domain}
    return any(
        _since(op, version) != _since(op, version - 1) and not is_compatible(op, version)
        for op in ops
        for version in range(old + 1, new + 1)
    )


def _rewrite(graph: Graph, old: int, new: int) -> list[str]:
    notes = []
    for version in range(old + 1, new + 1):
        for node in graph.nodes():
            if not node.domain:
                notes.extend(_step(graph, node, version, (old, new)))
    graph.refresh()  # forget the names of tensors that are gone
    return notes


def _step(graph: Graph, node: gs.Node, version: int, wanted: tuple[int, int]) -> list[str]:
    """Carry a node from the opset before `version` to `version`."""
    op = node.op
    before, after = _since(op, version - 1), _since(op, version)
    if before == after or is_compatible(op, version):
        return []
    try:
        if before is None:
            raise Refusal(
                f"opset {version} gives this name to a standard operator, and the node must be a custom one; "
                "put it into a domain of its own"
            )
        if (op, version) in REFUSED:
            raise Refusal(REFUSED[op, version])
        if (op, version) not in REWRITES:
            raise Refusal(f"changes up to opset {FIRST_OPSET} are not known to onnxq")
        change = REWRITES[op, version](graph, node)
    except Refusal as reason:
        old, new = wanted
        raise UnsupportedError(
            f"node '{node.name}' cannot be raised from opset {old} to {new} ({op} {before or 'custom'} -> {after}): "
            f"{reason}. Convert the model with onnx.version_converter, or export it again at opset {new}"
        ) from None
    return [Note("opset", f"{node.name}: {op} {before} -> {node.op} {after}: {change}")] if change else []


@cache
def _since(op: str, opset: int) -> int | None:
    """The version of an operator that an opset contains; None for an operator that ONNX does not define there."""
    try:
        return int(onnx.defs.get_schema(op, opset, "").since_version)
    except onnx.defs.SchemaError:
        return None
