"""The float model that goes with a table: no quantizers, weights limited to what their quantizers can represent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onnxq.emit import EMITTERS, Emitted
from onnxq.emit.tables import MODEL_SUFFIX, real_range
from onnxq.graph import DeferredValues, Graph
from onnxq.numerics import dequantize
from onnxq.types import Backend, Placement, QParams, QParamsTable, QuantPlan
from onnxq.types.granularity import PerBlock, PerChannel, resolve_axis


def deploy_model(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> Graph:
    """A copy of the float graph whose quantized constants are clipped to their range; nothing is rounded.

    The vendor's tool quantizes weights itself: clipping makes it find the range that onnxq has chosen. Weights whose
    integers an algorithm has fixed are the values of these integers, so that the tool finds them again. Biases with the
    scale of input times weight have no range of their own and stay.
    """
    result = graph.copy()
    result.keep_given_names()
    for placement in plan:
        if placement.derive is None and graph.is_constant(placement.tensor):
            _limit(result, placement, qparams)
    return result


def _limit(graph: Graph, placement: Placement, qparams: QParamsTable) -> None:
    """Limit the constant to what its quantizer can represent, for those who read it quantized."""
    tensor, parameters = placement.tensor, qparams[placement.tensor]
    fixed = qparams.integer_weights.get(tensor)
    values = graph.values(tensor)
    low, high = (_shaped(bound, values.shape, parameters) for bound in real_range(parameters))
    wide = values.astype(np.float64)
    if fixed is None and not (wide < low).any() and not (wide > high).any():
        return

    def compute() -> np.ndarray:
        if fixed is not None:
            return dequantize(fixed, parameters).astype(values.dtype)
        return np.clip(values.astype(np.float64), low, high).astype(values.dtype)

    _keep_for_others(graph, placement, values)
    graph.tensor(tensor).values = DeferredValues(values.shape, values.dtype, compute)


def _keep_for_others(graph: Graph, placement: Placement, values: np.ndarray) -> None:
    """A constant of its own for readers that the plan leaves float; the name stays with the quantized ones."""
    if placement.edges is None:
        return
    quantized = {(edge.node, edge.port) for edge in placement.edges}
    others = [use for use in graph.consumers(placement.tensor) if (use.node.name, use.port) not in quantized]
    if others:
        original = graph.tensor(placement.tensor)
        copy = graph.add_constant(f"{placement.tensor}_float", values, scope=graph.home_of(original))
        graph.redirect(original, copy, uses=others)


def _shaped(bound: np.ndarray, shape: tuple[int, ...], parameters: QParams) -> np.ndarray:
    """Bounds as they broadcast against the tensor."""
    granularity = parameters.spec.granularity
    if isinstance(granularity, PerChannel):
        axis = resolve_axis(granularity.axis, len(shape))
        return bound.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    if isinstance(granularity, PerBlock):
        axis = resolve_axis(granularity.axis, len(shape))
        return np.repeat(bound, granularity.size, axis=axis).take(np.arange(shape[axis]), axis)
    return bound


@EMITTERS.register("deploy")
def write_deploy_model(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Emitted:
    """Write `<name>_deploy_model.onnx`: the float model that the table belongs to."""
    return Emitted(tuple(deploy_model(graph, plan, qparams).save(folder / f"{name}{MODEL_SUFFIX}.onnx")))
