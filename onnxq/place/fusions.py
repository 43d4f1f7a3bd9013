"""Chains of operators that the user wants computed as one: no quantizer stands between their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph import Graph, Node


class Fusions:
    """Where the chains of operators `chains` are in a graph; a chain that is nowhere is an error.

    The first node of a chain is quantized, the others run inside it. Every result but the last has one reader. A
    longer chain is looked for before a shorter one.
    """

    def __init__(self, graph: Graph, nodes: Sequence[Node], chains: Sequence[Sequence[str]], skipped: set[str]) -> None:
        self._followers: dict[str, list[Node]] = {}
        self._leaders: dict[str, str] = {}
        self._found: dict[tuple[str, ...], list[str]] = {}
        for chain in sorted(chains, key=len, reverse=True):
            if len(chain) < 2:
                raise ConfigError(f"fuse: {list(chain)} is no chain: give two operators or more")
            found = False
            for node in nodes:
                followers = _followers(graph, node, chain)
                members = [node.name, *(follower.name for follower in followers)]
                if not followers or any(name in skipped for name in members):
                    continue
                found = True
                self._found.setdefault(tuple(chain), []).append(node.name)
                if not any(name in self._leaders or name in self._followers for name in members):
                    self._followers[node.name] = followers
                    self._leaders.update((follower.name, node.name) for follower in followers)
            if not found:
                raise ConfigError(_nowhere(chain, nodes))

    def unused(self, selected: set[str]) -> list[str]:
        """One line for every chain whose first node is quantized nowhere."""
        return [
            f"no effect: fuse {list(chain)}, because no {chain[0]} in front of it is quantized"
            for chain, leaders in self._found.items()
            if not selected.intersection(leaders)
        ]

    def leader(self, name: str) -> str | None:
        """The node inside which this one runs."""
        return self._leaders.get(name)

    def end(self, name: str, made: Any) -> Any:
        """The tensor that leaves the chain of a node; `made` where it leads none."""
        followers = self._followers.get(name)
        return followers[-1].outputs[0] if followers else made


def _followers(graph: Graph, node: Node, chain: Sequence[str]) -> list[Node]:
    """The nodes behind `node` that continue a chain; empty where it is not complete."""
    if node.op != chain[0] or node.domain:
        return []
    found: list[Node] = []
    made = node.outputs[0]
    unit = graph.units.of(node.name)
    if unit is not None and unit.kind == "MatMulAdd" and unit.nodes[0] == node.name and chain[1] != "Add":
        made = graph.node(unit.last).outputs[0]
    for op in chain[1:]:
        uses = graph.consumers(made)
        if len(uses) != 1 or graph.is_output(made) or uses[0].node.op != op or uses[0].node.domain:
            return []
        found.append(uses[0].node)
        made = uses[0].node.outputs[0]
    return found


def _nowhere(chain: Sequence[str], nodes: Sequence[Node]) -> str:
    operators = sorted({str(node.op) for node in nodes})
    unknown = [op for op in chain if op not in operators]
    if unknown:
        near = did_you_mean(unknown[0], operators)
        return (
            f"fuse: the model has no operator '{unknown[0]}' (in {list(chain)}).{near} It has: {', '.join(operators)}"
        )
    return (
        f"fuse: the chain {list(chain)} is nowhere in the model: each result but the last must have one reader, and "
        "what passes fold (BatchNormalization) is gone already"
    )
