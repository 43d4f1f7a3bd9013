"""Formats that share scales in blocks, on tensors that are computed at run time: so are the scales of their blocks.

The blocks lie along the axis that the first layer sums over which reads the tensor, unless somebody has said where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxq.graph import Graph
from onnxq.place.override_resolver import OverrideResolver
from onnxq.place.requests import Requests
from onnxq.types import PerBlock
from onnxq.types.presets import summed_axis


def compute_scales_at_run_time(
    graph: Graph, resolver: OverrideResolver, groups: Mapping[str, Sequence[str]], requests: Requests
) -> None:
    """Mark these formats as dynamic, and turn their blocks; tensors with one quantizer have one axis."""
    leaders = {name: leader for leader, members in groups.items() for name in members}
    for name, request in requests.items():
        spec = request.spec
        if not spec.format.can_be_dynamic:
            continue
        blocks = spec.format.wanted_granularity(spec.granularity, None, None)
        assert isinstance(blocks, PerBlock)
        if graph.is_constant(name):
            request.spec = spec.replace(granularity=blocks)
            continue
        said = "channel_axis" in request.picks or resolver.format_source("activation", "channel_axis") is not None
        if not said:
            blocks = PerBlock(_axis(graph, requests, leaders.get(name, name)), blocks.size)
        request.spec = spec.replace(granularity=blocks, dynamic=True)


def _axis(graph: Graph, requests: Requests, tensor: str) -> int:
    held = requests.edges(tensor) if tensor in requests else None
    uses = [(use.node, use.port) for use in graph.consumers(tensor)]
    if held is not None:
        quantized = {(edge.node, edge.port) for edge in held}
        uses = [(node, port) for node, port in uses if (node.name, port) in quantized]
    found = (summed_axis(node.op, port, node.attrs) for node, port in uses if not node.domain)
    return next((axis for axis in found if axis is not None), -1)
