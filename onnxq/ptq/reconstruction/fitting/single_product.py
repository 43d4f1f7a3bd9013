"""A block that is one product of computed values with a constant matrix, such as the head of a language model.

    E|x~ Q - x W|^2 = tr(DT H D) + 2 tr(DT B W) + tr(WT C W)         D = Q - W
    H = E[x~T x~]        B = E[x~T (x~ - x)]        C = E[(x~ - x)T (x~ - x)]

Its error is a quadratic form, which column by column (GPTQ, `onnxq.ptq.weights.gptq_matrix`) makes smaller than signs
of gradients do: where a few directions of x hold most of the power, all weights of an output move for the sake of
these, and swing around them. On the head of a decoder with 288 inputs GPTQ leaves 0.68 of the error of plain rounding,
and 200 steps of signs, with the gradient of all positions and the best of many rates, 0.78; with AutoRound's own rate
it grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from onnxq.graph import Graph
from onnxq.ptq.reconstruction.blocks import Segment
from onnxq.ptq.reconstruction.fitting.batches import BlockSamples
from onnxq.ptq.weights.gptq_matrix import Grid, gptq_stack
from onnxq.ptq.weights.matrices import view_of_columns
from onnxq.ptq.weights.shrinkage import shrunk
from onnxq.torchnet.values import Value
from onnxq.types import QParams, QuantPlan


def single_product(graph: Graph, segment: Segment, plan: QuantPlan) -> str | None:
    """The weight of a segment that is a MatMul and nothing else, whose input nobody quantizes."""
    if len(segment.nodes) != 1:
        return None
    node = graph.node(segment.nodes[0])
    if node.op != "MatMul" or node.domain or segment.reads != (node.inputs[0].name,) or node.inputs[0].name in plan:
        return None
    weight = node.inputs[1]
    return weight.name if segment.weights == (weight.name,) and len(graph.shape(weight) or ()) == 2 else None


@dataclass(frozen=True)
class _Moments:
    """H, B and C over `count` positions of some samples, E[xT x] of the float model, and the mean of x~."""

    own: np.ndarray
    drift: np.ndarray
    noise: np.ndarray
    exact: np.ndarray
    mean: np.ndarray
    count: int

    @classmethod
    def of(cls, samples: BlockSamples, numbers: Sequence[int]) -> _Moments:
        batches = [samples.batch((number,)) for number in numbers]
        own = np.concatenate([_rows(batch.quantized[0]) for batch in batches])
        exact = np.concatenate([_rows(batch.float[0]) for batch in batches])
        off, count = own - exact, len(own)
        squares, drift, noise, signal = (
            left.T @ right / np.float32(count) for left, right in ((own, own), (own, off), (off, off), (exact, exact))
        )
        return cls(squares, drift, noise, signal, own.mean(0, dtype=np.float64), count)


def _rows(values: Value) -> np.ndarray:
    assert isinstance(values, Tensor)
    return values.reshape(-1, values.shape[-1]).float().numpy()


class ProductFit:
    """The weight [inputs, outputs] of such a block with what its samples say."""

    def __init__(self, exact: np.ndarray, samples: BlockSamples) -> None:
        self._exact = np.asarray(exact, np.float32)
        self._fitted, self._held = _Moments.of(samples, samples.fitted), _Moments.of(samples, samples.held)

    def loss(self, values: np.ndarray) -> float:
        """Noise over signal on the samples that decide."""
        weight, held, change = self._exact, self._held, values - self._exact
        signal = _total(weight, held.exact @ weight)
        noise = _total(change, held.own @ change + 2 * (held.drift @ weight)) + _total(weight, held.noise @ weight)
        found = noise / signal if signal > 0 else 0.0
        return found if math.isfinite(found) else math.inf

    def rounded(self, qparams: QParams) -> np.ndarray:
        """The values on the grid that make up for each other."""
        view, moments = view_of_columns(self._exact.shape), self._fitted
        mean = moments.mean[None]
        own = shrunk(moments.own[None].astype(np.float64), mean, mean, moments.count)
        return view.fold(gptq_stack(view.unfold(self._exact), own, Grid.of(qparams, view)))


def _total(left: np.ndarray, right: np.ndarray) -> float:
    return float(np.einsum("ko,ko->o", left, right).sum(dtype=np.float64))
