"""What all tables of parameters have in common: which tensors they list, and the real range of a quantizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from onnxq.graph import Graph
from onnxq.numerics import float_max
from onnxq.types import Placement, QParams, QParamsTable, QuantPlan

MODEL_SUFFIX = "_deploy_model"
"""The float model that tables belong to is called `<name>_deploy_model.onnx`."""


class Row(NamedTuple):
    """One quantizer of a plan with its parameters."""

    tensor: str
    placement: Placement
    qparams: QParams

    @property
    def low(self) -> np.ndarray:
        """The lowest real value that the quantizer lets pass, float64, one for each scale."""
        return real_range(self.qparams)[0]

    @property
    def high(self) -> np.ndarray:
        return real_range(self.qparams)[1]


def rows(graph: Graph, plan: QuantPlan, qparams: QParamsTable, *, role: str = "activation") -> Iterator[Row]:
    """The quantizers of a role in plan order: "activation" means every tensor computed at run time.

    "weight" means constants other than biases. Tied tensors are listed too, with the parameters they share.
    """
    for placement in plan:
        constant = graph.is_constant(placement.tensor)
        kind = "activation" if not constant else "bias" if placement.role == "bias" else "weight"
        if kind == role:
            yield Row(placement.tensor, placement, qparams[placement.tensor])


def real_range(qparams: QParams) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest real value, float64: scale * (qmin - zero_point) and scale * (qmax - zero_point)."""
    scale = qparams.scale.astype(np.float64)
    spec = qparams.spec
    if spec.grid != "affine":
        return -scale * float_max(spec.dtype), scale * float_max(spec.dtype)
    zero_point = qparams.zero_point.astype(np.float64)
    return scale * (spec.qmin - zero_point), scale * (spec.qmax - zero_point)


def differs(read: object, wanted: object, tolerance: float) -> bool:
    """Whether numbers read from a file differ from those that should stand there by more than `tolerance` (relative).

    Both may be numbers or arrays; another number of entries is a difference.
    """
    one, other = np.asarray(read, np.float64).reshape(-1), np.asarray(wanted, np.float64).reshape(-1)
    if one.shape != other.shape:
        return True
    return bool(np.any(~(np.abs(one - other) <= tolerance * np.maximum(np.abs(other), np.finfo(np.float32).tiny))))
