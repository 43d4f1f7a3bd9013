"""The model with OpenVINO's own FakeQuantize nodes: a float model that says on which grid each tensor lies.

    FakeQuantize(x, input_low, input_high, output_low, output_high), levels:
        x clipped to [low, high], then round((x - low) / (high - low) * (levels - 1)) steps above low

Low and high are the real values of the lowest and the highest code, both zero points and scales in one. OpenVINO runs
a layer in 8-bit integers only for 255 or 256 levels, so that a format of 7 bits is written on the grid of 8 bits with
the same step; the values themselves, clipped before, reach no further than their own format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.deploy import deploy_model
from onnxq.emit.passed_back import moves_values
from onnxq.emit.tables import MODEL_SUFFIX, broadcast, differs
from onnxq.emit.uses import origin, readings, uses_of
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, Node, collector_paused
from onnxq.half import opset_for, to_half
from onnxq.types import PerBlock, PerChannel, PerTensor, Placement, QParams, QParamsTable, QuantPlan

DOMAIN = "org.openvinotoolkit"
OPERATOR = "FakeQuantize"
_TOLERANCE = 1e-6
"""Bounds are float32: half a unit in the last place is 6e-8 of them."""


class FakeGrid(NamedTuple):
    """The grid of one quantizer as FakeQuantize says it; `low` and `high` broadcast against the tensor."""

    low: np.ndarray
    high: np.ndarray
    levels: int


def fake_grid(tensor: str, parameters: QParams, rank: int) -> FakeGrid:
    """The bounds of a quantizer, float32: of shape [1] for one scale, else with the channels on their axis."""
    spec = parameters.spec
    if not spec.evenly_spaced:
        raise UnsupportedError(
            f"tensor '{tensor}' is {spec}: FakeQuantize has equal steps only. Choose an integer format for it"
        )
    if isinstance(spec.granularity, PerBlock):
        raise UnsupportedError(
            f"tensor '{tensor}' is quantized {spec.granularity}: FakeQuantize has one range for a tensor or for each "
            "channel. Quantize it per channel"
        )
    low_code, high_code = _eight_bit_codes(spec.qmin, spec.qmax)
    scale = parameters.scale.astype(np.float64)
    high = (high_code - parameters.zero_point) * scale
    low = high - scale * (high_code - low_code)
    shape = (None,) * rank
    low32, high32 = (np.atleast_1d(broadcast(bound.astype(np.float32), shape, parameters)) for bound in (low, high))
    return FakeGrid(low32, high32, high_code - low_code + 1)


def _eight_bit_codes(qmin: int, qmax: int) -> tuple[int, int]:
    """The codes of the grid that is written: those of a 7-bit format twice as far apart, all others as they are."""
    levels = qmax - qmin + 1
    if levels == 128:
        return 2 * qmin, 2 * qmax + 1
    if levels == 127:
        return 2 * qmin - int(qmin < 0), 2 * qmax + 1
    return qmin, qmax


def to_fake_quantize(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> Graph:
    """The float model with a FakeQuantize wherever the plan has a quantizer that is not there already."""
    result = deploy_model(graph, plan, qparams)
    with collector_paused():
        for placement in plan:
            if placement.edges != () and not _propagated(graph, plan, placement):
                _write(result, placement, qparams)
    if plan.rest is not None:
        result.raise_opset(opset_for(plan.rest))
        to_half(result, plan.rest, qparams.entries)
    return result


def _propagated(graph: Graph, plan: QuantPlan, placement: Placement) -> bool:
    """Whether the tensor holds moved values that lie on its grid already: tied to what its producer reads quantized."""
    node = graph.producer(placement.tensor)
    if node is None or not moves_values(node) or not isinstance(placement.spec.granularity, PerTensor):
        return False
    source = plan.placements.get(node.inputs[0].name)
    if source is None or plan.leader(source.tensor) != plan.leader(placement.tensor):
        return False
    return source.edges is None or any(edge.node == node.name and edge.port == 0 for edge in source.edges)


def _write(graph: Graph, placement: Placement, qparams: QParamsTable) -> None:
    name, parameters = placement.tensor, qparams[placement.tensor]
    source = graph.tensor(name)
    shape = graph.shape(source)
    if shape is None and isinstance(parameters.spec.granularity, PerChannel):
        raise UnsupportedError(
            f"tensor '{name}' has a scale for each channel, but its rank is unknown; quantize it per tensor"
        )
    if not graph.consumers(source) and not graph.is_output(source):
        return  # an input that nobody reads
    grid = fake_grid(name, parameters, len(shape or ()))
    home = graph.home_of(source)
    bounds = [
        graph.add_constant(f"{side}_{name}", values, scope=home)
        for side, values in (
            ("input_min", grid.low),
            ("input_max", grid.high),
            ("output_min", grid.low),
            ("output_max", grid.high),
        )
    ]
    attrs, uses = {"levels": grid.levels}, uses_of(graph, placement)
    graph.insert_after(source, OPERATOR, attrs=attrs, extra_inputs=bounds, uses=uses, domain=DOMAIN)


def write_fake_quantize(request: EmitRequest) -> Emitted:
    """Write `<name>_deploy_model.onnx`: the float model with FakeQuantize nodes of org.openvinotoolkit."""
    made = to_fake_quantize(*request.quantized)
    path = request.path(MODEL_SUFFIX)
    return Emitted(tuple(made.save(path)), tuple(_misread_pairs(request.graph, request.plan, path.name)))


def _misread_pairs(graph: Graph, plan: QuantPlan, file: str) -> Iterator[str]:
    """Signed Q/DQ pairs directly behind a Concat, where OpenVINO 2026.4 gives wrong numbers (not for FakeQuantize)."""
    for placement in plan:
        producer = graph.producer(placement.tensor)
        if producer is not None and producer.op == "Concat" and placement.spec.signed and placement.spec.symmetric:
            yield (
                f"'{placement.tensor}' is {placement.spec.dtype} behind a Concat, where OpenVINO 2026.4 computes Q/DQ "
                f"models wrongly: give it {file}, which it computes rightly"
            )


def check_fake_quantize(request: EmitRequest) -> Iterator[str]:
    """Look from every reader of a quantized tensor back to the FakeQuantize in front of it, and compare its grid."""
    written = Graph.load(request.path(MODEL_SUFFIX))
    left = {node.name for node in written.nodes(OPERATOR) if node.domain == DOMAIN}
    compared: set[tuple[str, str]] = set()
    for placement in request.plan:
        tensor = placement.tensor
        for reader, read in readings(request.graph, written, placement):
            node = None if read is None else _in_front(request.graph, written, tensor, read)
            if node is None:
                yield f"tensor '{tensor}' has no FakeQuantize in the file where {reader} reads it"
                continue
            left.discard(node.name)
            if (tensor, node.name) not in compared:
                compared.add((tensor, node.name))
                grid = fake_grid(tensor, request.qparams[tensor], len(request.graph.shape(tensor) or ()))
                yield from (f"tensor '{tensor}': {problem}" for problem in _other_grid(written, node, grid))
    for label in sorted(left):
        yield f"the file has a FakeQuantize '{label}' that the plan does not have"


def _in_front(graph: Graph, written: Graph, tensor: str, read: Any) -> Node | None:
    """The FakeQuantize whose values arrive at `read` unchanged, if it stands where the values of `tensor` come from."""
    node = written.producer(_in_front_of_casts(graph, written, read))
    while node is not None and not node.domain and _only_moves(node):
        if graph.has_node(node.name):
            tensor = graph.node(node.name).inputs[0].name
        node = written.producer(_in_front_of_casts(graph, written, node.inputs[0]))
    if node is None or (node.op, node.domain) != (OPERATOR, DOMAIN):
        return None
    found: Node = node
    source = _in_front_of_casts(graph, written, found.inputs[0])
    return found if origin(written, source) == origin(graph, tensor) else None


def _in_front_of_casts(graph: Graph, written: Graph, tensor: Any) -> Any:
    """What a tensor is converted from, where half precision begins or ends; Casts of the model itself compute."""
    node = written.producer(tensor)
    while node is not None and node.op == "Cast" and not graph.has_node(node.name):
        tensor = node.inputs[0]
        node = written.producer(tensor)
    return tensor


def _only_moves(node: Node) -> bool:
    """What may stand between a FakeQuantize and a reader; not the writer's own list, whose mistakes it is to find."""
    if node.op in ("Resize", "Upsample"):
        return bool(node.attrs.get("mode", "nearest") == "nearest")
    return node.op in (
        *("Identity", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "DepthToSpace", "SpaceToDepth"),
        *("MaxPool", "Slice", "Split", "Gather", "Expand", "Tile"),
    )


def _other_grid(written: Graph, node: Node, grid: FakeGrid) -> Iterator[str]:
    if int(node.attrs["levels"]) != grid.levels:
        yield f"'{node.name}' has {node.attrs['levels']} levels in the file, the format has {grid.levels}"
    for port, wanted in ((1, grid.low), (2, grid.high), (3, grid.low), (4, grid.high)):
        held = written.values(node.inputs[port])
        if held.shape != wanted.shape or differs(held, wanted, _TOLERANCE):
            yield f"'{node.inputs[port].name}' in the file is not what the parameters say"


EMITTERS.add("fake_quantize", Emitter(write_fake_quantize, files=(MODEL_SUFFIX,), read_back=check_fake_quantize))
