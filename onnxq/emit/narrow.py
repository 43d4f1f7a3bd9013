"""Formats narrower than the type that stores them: QuantizeLinear saturates at the bounds of its type only.

7 bits in an int8, or a narrow range, get a Clip in front, so that the file computes exactly what `onnxq.numerics` does.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxq.emit.tables import broadcast, real_range
from onnxq.graph import DeferredValues, Graph
from onnxq.types import QParams, QuantSpec
from onnxq.types.number_format import number_format


@cache
def is_narrower(spec: QuantSpec) -> bool:
    """Whether QuantizeLinear would let pass what the format lacks."""
    return spec.evenly_spaced and spec.ends != number_format(spec.format.stored_as).integers


def clip_to_range(graph: Graph, source: Any, parameters: QParams, kind: Any, scope: Any) -> Any:
    """The tensor with nothing beyond the bounds of its format; the tensor itself where its type takes care of that."""
    spec = parameters.spec
    if not is_narrower(spec):
        return source
    if parameters.scale.ndim:
        return _clip_channels(graph, source, parameters, np.dtype(kind or np.float32), scope)
    steps = np.array([spec.qmin, spec.qmax], dtype=np.float32) - np.float32(parameters.zero_point)
    low, high = (steps * parameters.scale).astype(kind or np.float32)
    bounds = [graph.add_constant(f"{source.name}_{side}", np.asarray(v)) for side, v in (("low", low), ("high", high))]
    clipped = graph.add_variable(f"{source.name}_clipped", kind, source.shape)
    graph.add_node("Clip", [source, *bounds], [clipped], name=f"{source.name}_Clip", scope=scope)
    return clipped


def _clip_channels(graph: Graph, source: Any, parameters: QParams, kind: np.dtype[Any], scope: Any) -> Any:
    """The same with bounds for every channel, which Clip does not take: constants are limited beforehand."""
    name, shape = source.name, tuple(source.shape)
    low, high = (broadcast(bound, shape, parameters) for bound in real_range(parameters))
    if graph.is_constant(source):

        def compute() -> np.ndarray:
            return np.clip(graph.values(source).astype(np.float64), low, high).astype(kind)

        return graph.add_constant(f"{name}_clipped", DeferredValues(shape, kind, compute), scope=scope)
    limited = source
    for op, side, bound in (("Max", "low", low), ("Min", "high", high)):
        limit = graph.add_constant(f"{name}_{side}", bound.astype(kind), scope=scope)
        made = graph.add_variable(f"{name}_{side}_limited", kind, shape)
        graph.add_node(op, [limited, limit], [made], name=f"{name}_{op}", scope=scope)
        limited = made
    return limited
