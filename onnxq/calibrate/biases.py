"""Biases: scale = scale(input) * scale(weight), zero point 0, with weights made coarser where a bias would overflow.

Input scales are per tensor. A bias has one scale for each scale of its weight, along its own channel axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.calibrate.precision import fitted
from onnxq.errors import SpecError
from onnxq.graph import Graph, Node
from onnxq.numerics import BIAS_LIMIT, derived_bias_scale, widen_weight_scale_for_bias
from onnxq.types import BiasOf, PerChannel, PerTensor, Placement, QParams, QParamsTable, QuantPlan, QuantSpec
from onnxq.types.granularity import resolve_axis
from onnxq.types.spec import why_no_derived_bias

NEARLY_DEAD = 8.0
"""How many times a scale has grown when a channel has so few steps left that its weights hardly count."""


@dataclass(frozen=True)
class Widened:
    """A weight whose scales were enlarged for its bias.

    factor    the largest of all channels
    channel   the channel that has it; None where the weight has one scale
    weight    the largest magnitude of that channel, and of its `bias`
    steps     how many steps of the new scale that is
    dead      channels whose scale has grown NEARLY_DEAD times or more
    """

    factor: float
    channel: int | None
    weight: float
    bias: float
    steps: float
    dead: int


def widen_weights(
    graph: Graph, plan: QuantPlan, biases: Sequence[Placement], table: QParamsTable
) -> dict[str, Widened]:
    """Enlarge weight scales so that each bias fits into int32; returns what was done to which weight.

    All biases of a weight are taken into account before any bias is derived.
    """
    before: dict[str, np.ndarray] = {}
    largest_biases: dict[str, np.ndarray] = {}
    for placement in biases:
        source = _source(placement)
        weight_name = plan.leader(source.weight)
        weight = table[weight_name]
        largest = _per_scale(np.abs(graph.values(placement.tensor).astype(np.float64)), placement, weight)
        scale = widen_weight_scale_for_bias(
            largest,
            table[plan.leader(source.input)].scale,
            weight.scale,
            power_of_two=weight.spec.power_of_two,
            limit=min(BIAS_LIMIT, placement.spec.qmax),
        )
        if np.any(scale > weight.scale):
            before.setdefault(weight_name, weight.scale)
            largest_biases[weight_name] = np.maximum(largest, largest_biases.get(weight_name, 0.0))
            wider = fitted(graph, weight_name, QParams(weight.spec, scale, weight.zero_point))
            table.change(weight_name, wider, "widened for its bias")
    return {name: _widened(graph, name, table[name], scale, largest_biases[name]) for name, scale in before.items()}


def _widened(graph: Graph, name: str, now: QParams, before: np.ndarray, bias: np.ndarray) -> Widened:
    factors = now.scale / before
    place = np.unravel_index(int(np.argmax(factors)), factors.shape)
    channel, granularity, values = None, now.spec.granularity, graph.values(name)
    if isinstance(granularity, PerChannel):
        channel = int(place[0])
        values = values.take(channel, axis=granularity.axis)
    weight = float(np.abs(values.astype(np.float64)).max(initial=0.0))
    return Widened(
        factor=float(factors[place]),
        channel=channel,
        weight=weight,
        bias=float(np.broadcast_to(bias, factors.shape)[place]),
        steps=weight / float(now.scale[place]),
        dead=int((factors >= NEARLY_DEAD).sum()),
    )


def float_biases(graph: Graph, plan: QuantPlan) -> list[Placement]:
    """Biases that stay float beside a quantized input and weight, as if they were quantized.

    Engines hold them in int32 all the same, with scale(input) * scale(weight), and some do not notice an overflow.
    """
    found = []
    for placement in plan:
        for edge in placement.edges or () if placement.role == "weight" else ():
            node = graph.node(edge.node)
            data = node.inputs[0].name
            bias = _bias_operand(graph, node)
            if edge.port != 1 or bias is None or bias in plan or data not in plan or plan[data].observe_only:
                continue
            if why_no_derived_bias(plan[data].spec, placement.spec) is None and _fits(graph, placement, bias):
                spec = QuantSpec("int32", granularity=PerChannel(0))
                derive = BiasOf(data, placement.tensor)
                found.append(Placement(bias, spec, "bias", "float bias of a quantized node", derive=derive))
    return found


def _fits(graph: Graph, weight: Placement, bias: str) -> bool:
    """Whether a bias has a number for each scale of its weight: scales along input channels say nothing about it.

    A bias of minus infinity, which rules a class out, is no number that could be held in int32.
    """
    if not np.isfinite(graph.values(bias)).all():
        return False
    granularity = weight.spec.granularity
    if not isinstance(granularity, PerChannel):
        return True
    return bool(graph.values(weight.tensor).shape[granularity.axis] == graph.values(bias).size)


def _bias_operand(graph: Graph, node: Node) -> str | None:
    """A constant row of numbers that is added to the result: the third input, or the Add of a MatMulAdd unit."""
    candidates = node.inputs[2:3]
    unit = graph.units.of(node.name)
    if node.op == "MatMul" and unit is not None and unit.kind == "MatMulAdd":
        candidates = graph.node(unit.last).inputs
    rows = [t.name for t in candidates if t.name and graph.is_constant(t) and len(graph.shape(t) or ()) == 1]
    return rows[0] if rows else None


def derive_biases(graph: Graph, plan: QuantPlan, biases: Sequence[Placement], table: QParamsTable) -> None:
    """Fill in the parameters of each bias."""
    for placement in biases:
        source = _source(placement)
        weight = table[plan.leader(source.weight)]
        try:
            scale = derived_bias_scale(table[plan.leader(source.input)], weight)
        except SpecError as error:
            raise SpecError(f"bias '{placement.tensor}': {error}") from error
        spec = _bias_spec(placement, weight, len(graph.shape(placement.tensor) or ()))
        qparams = QParams(spec, scale, np.zeros(scale.shape, np.int32))
        table.put(placement.tensor, fitted(graph, placement.tensor, qparams), f"{source.input} * {source.weight}")


def _source(placement: Placement) -> BiasOf:
    if placement.derive is None:
        raise SpecError(f"bias '{placement.tensor}' does not say which input and weight its scale derives from")
    return placement.derive


def _bias_spec(placement: Placement, weight: QParams, rank: int) -> QuantSpec:
    """The bias's own format with as many scales as its weight has."""
    if isinstance(weight.spec.granularity, PerTensor):
        return placement.spec.replace(granularity=PerTensor())
    if isinstance(placement.spec.granularity, PerChannel):
        return placement.spec
    # A bias of rank 1 is a list of channels; one of higher rank broadcasts, channels last.
    return placement.spec.replace(granularity=PerChannel(0 if rank == 1 else rank - 1))


def _per_scale(bias: np.ndarray, placement: Placement, weight: QParams) -> np.ndarray:
    """The largest |bias| that shares each scale."""
    granularity = _bias_spec(placement, weight, bias.ndim).granularity
    if isinstance(granularity, PerTensor):
        return np.asarray(bias.max(initial=0.0))
    assert isinstance(granularity, PerChannel)
    axis = resolve_axis(granularity.axis, bias.ndim)
    if weight.scale.shape != (bias.shape[axis],):
        raise SpecError(
            f"bias '{placement.tensor}' has {bias.shape[axis]} channels along axis {axis}, but its weight has "
            f"{weight.scale.size} scales: quantize the weight along its output channels, or keep the bias in float"
        )
    return np.asarray(bias.max(axis=tuple(i for i in range(bias.ndim) if i != axis), initial=0.0))
