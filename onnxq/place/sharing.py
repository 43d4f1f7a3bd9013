"""Which quantizers share a scale beside those of moved values: around a Concat, and those the user gave one name.

Tensors with one scale have one format, observer and fake-quantizer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from onnxq.errors import ConfigError
from onnxq.graph import Graph, Node
from onnxq.place.requests import Requests
from onnxq.place.tensor_overrides import TensorOverrides
from onnxq.types import Backend, PerTensor


def tie_joined(graph: Graph, backend: Backend, nodes: Sequence[Node], requests: Requests) -> None:
    """One scale for the quantized tensors on both sides of a Concat, also where others only move values between."""
    behind: dict[str, str] = {}  # tensor -> the quantized tensor that it flows into through moving nodes alone
    for node in reversed(nodes):
        made = node.outputs[0].name if node.outputs else ""
        if made in requests:
            behind[made] = made
        elif made and node.op in backend.commuting:
            readers = graph.consumers(made)
            if len(readers) == 1 and readers[0].node.op in backend.commuting:
                further = behind.get(readers[0].node.outputs[0].name)
                if further is not None:
                    behind[made] = further
    for node in nodes:
        if node.op in backend.tied and node.outputs[0].name in behind:
            for tensor in node.inputs:
                source = _quantized_source(graph, backend, tensor, requests)
                if source is not None:
                    requests.ties.join(behind[node.outputs[0].name], source)


def _quantized_source(graph: Graph, backend: Backend, tensor: Any, requests: Requests) -> str | None:
    """The quantized tensor that `tensor` is, or whose values it moves."""
    while tensor.name not in requests or graph.is_constant(tensor):
        producer = graph.producer(tensor)
        if producer is None or producer.op not in backend.commuting or producer.op in backend.tied:
            return None
        tensor = producer.inputs[0]
    return str(tensor.name)


def tie_shared(graph: Graph, overrides: TensorOverrides, requests: Requests) -> None:
    """Tie tensors whose quantizers the user gave one name."""
    groups: dict[str, list[str]] = {}
    said: dict[str, dict[str, None]] = {}
    for name, request in requests.items():
        picks = request.picks if graph.is_constant(name) else overrides.of_activation([name])
        if "share" in picks:
            groups.setdefault(str(picks["share"].value), []).append(name)
            said.setdefault(str(picks["share"].value), {})[picks["share"].source] = None
    for share, members in groups.items():
        where = ", ".join(said[share])
        kinds = {graph.is_constant(name) for name in members}
        if len(kinds) > 1 or any(requests[name].derive is not None for name in members):
            listed = ", ".join(f"'{name}'" for name in members)
            raise ConfigError(
                f"share '{share}' joins {listed}: constants and computed tensors, or biases whose scale is "
                f"derived, cannot share a quantizer. Give them different names ({where})"
            )
        if kinds == {True}:
            _check_shared_constants(share, members, requests, where)
        for name in members[1:]:
            requests.ties.join(members[0], name)


def _check_shared_constants(share: str, members: Sequence[str], requests: Requests, where: str) -> None:
    found = {requests[name].spec for name in members}
    if len(found) > 1 or not isinstance(next(iter(found)).granularity, PerTensor):
        listed = "; ".join(f"'{name}': {requests[name].spec}" for name in members)
        raise ConfigError(
            f"share '{share}' needs one format with one scale for all ({listed}): set per_channel = false and the "
            f"same format for them ({where})"
        )


def unify_formats(graph: Graph, backend: Backend, propagated: Collection[str], requests: Requests) -> None:
    """Tensors that share a scale share the format: a signed one where any of them is, else the widest.

    A range known for one of them is not the range of all.
    """
    for members in requests.ties.groups().values():
        asked = [requests[name] for name in members if name in requests]
        if len(observed_members(graph, members, propagated)) > 1:
            for request in asked:
                if request.known_range:
                    request.observer = backend.activation_observer
        specs = [request.spec for request in asked]
        if len(set(specs)) < 2:
            continue
        signed = [spec for spec in specs if spec.signed or not spec.symmetric] or specs
        chosen = max(signed, key=lambda spec: spec.bits)
        for request in asked:
            request.spec = chosen


def observed_members(graph: Graph, members: Sequence[str], propagated: Collection[str]) -> tuple[str, ...]:
    """Members whose values can set the range: those not made by moving (`propagated`) values of other members."""
    inside = set(members)
    found = []
    for name in members:
        producer = graph.producer(name)
        moved = producer is not None and producer.name in propagated
        sources = {t.name for t in producer.inputs} if producer is not None else set()
        if not moved or not inside & sources:
            found.append(name)
    return tuple(found)
