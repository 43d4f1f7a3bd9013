"""Layers that are one module in PyTorch and several nodes in a file: Gelu, SiLU, HardSwish, LayerNorm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onnxq.compat.mqbench.targets import Target
from onnxq.compat.structure import Structure
from onnxq.graph import Node


@dataclass(frozen=True)
class LayerBoundary:
    """The nodes at the boundary of their layers, and the tensors inside that these would ask a quantizer for."""

    nodes: list[str]
    inside: list[str]


def layer_boundary(structure: Structure, names: Iterable[str], target: Target) -> LayerBoundary:
    """Of layers in several nodes those that read from outside; nodes that are a layer of their own as they are.

    A quantizer stands in front of such a layer, not inside. Where the target quantizes results too, the last node is at
    the boundary as well.
    """
    graph, chosen = structure.graph, dict.fromkeys(names)
    units = dict.fromkeys(structure.unit_of(graph.node(name)) for name in chosen)
    with_output = any(rule.output for rule in target.backend.rules)
    inside: dict[str, None] = {}
    for unit in units:
        if unit is None or not all(name in chosen for name in unit.nodes):
            continue
        made = {name for member in unit.nodes[:-1] for name in _made(graph.node(member))}
        for member in unit.nodes:
            node = graph.node(member)
            read = [tensor.name for tensor in node.inputs if tensor.name and not structure.is_constant(tensor)]
            if all(name in made for name in read) and not (with_output and member == unit.last):
                del chosen[member]
                continue
            asked = [*read, *(_made(node) if with_output else ())]
            inside.update(dict.fromkeys(name for name in asked if name in made))
    return LayerBoundary(list(chosen), list(inside))


def _made(node: Node) -> list[str]:
    return [tensor.name for tensor in node.outputs if tensor.name]
