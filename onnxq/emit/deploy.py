"""The float model that goes with a table: no quantizers, weights limited to what their quantizers can represent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onnxq.emit import EMITTERS, Emitted
from onnxq.emit.tables import MODEL_SUFFIX, real_range
from onnxq.graph import DeferredValues, Graph
from onnxq.types import Backend, QParams, QParamsTable, QuantPlan
from onnxq.types.granularity import PerBlock, PerChannel, resolve_axis


def deploy_model(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> Graph:
    """A copy of the float graph whose quantized constants are clipped to their range; nothing is rounded.

    The vendor's tool quantizes weights itself: clipping makes it find the range that onnxq has chosen.
    """
    result = graph.copy()
    result.keep_given_names()
    for placement in plan:
        if placement.role != "bias" and graph.is_constant(placement.tensor):
            _clip(result, placement.tensor, qparams[placement.tensor])
    return result


def _clip(graph: Graph, tensor: str, parameters: QParams) -> None:
    values = graph.values(tensor)
    low, high = (_shaped(bound, values.shape, parameters) for bound in real_range(parameters))
    if not (values.astype(np.float64) < low).any() and not (values.astype(np.float64) > high).any():
        return

    def compute() -> np.ndarray:
        return np.clip(values.astype(np.float64), low, high).astype(values.dtype)

    graph.tensor(tensor).values = DeferredValues(values.shape, values.dtype, compute)


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
