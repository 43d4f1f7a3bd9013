"""The float model that goes with a table: no quantizers, weights limited to what their quantizers can represent."""

from __future__ import annotations

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.tables import MODEL_SUFFIX, broadcast, real_range
from onnxq.emit.uses import keep_for_others
from onnxq.graph import DeferredValues, Graph
from onnxq.numerics import dequantize
from onnxq.types import Placement, QParamsTable, QuantPlan


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
    low, high = (broadcast(bound, values.shape, parameters) for bound in real_range(parameters))
    wide = values.astype(np.float64)
    if fixed is None and not (wide < low).any() and not (wide > high).any():
        return

    def compute() -> np.ndarray:
        if fixed is not None:
            return dequantize(fixed, parameters).astype(values.dtype)
        return np.clip(values.astype(np.float64), low, high).astype(values.dtype)

    keep_for_others(graph, placement, values)
    graph.tensor(tensor).values = DeferredValues(values.shape, values.dtype, compute)


def write_deploy_model(request: EmitRequest) -> Emitted:
    """Write `<name>_deploy_model.onnx`: the float model that the table belongs to."""
    return Emitted(tuple(deploy_model(*request.quantized).save(request.path(MODEL_SUFFIX))))


EMITTERS.add("deploy", Emitter(write_deploy_model, files=(MODEL_SUFFIX,)))
