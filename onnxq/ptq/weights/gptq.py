"""GPTQ for layers of a model: weights are rounded so that the outputs, not the weights, are as near as can be.

Frantar, Ashkboos, Hoefler, Alistarh: "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", 2022. For each layer

    min over Q on the grid of  (W - Q) H (W - Q)T        H = E[x xT]

by the algorithm in `onnxq.ptq.weights.gptq_matrix`. Convolutions are matrices that multiply patches, each group with
its own moments, so that a depthwise layer has a 9 x 9 problem for each channel. Scales stay as calibration or a scale
search has left them, but for `recompute`.

The inputs that layers are fitted to come from one run of the model as it was before this step: of the model with its
quantizers (`inputs=quantized`), so that a layer also makes up for the rounding of its inputs, or without.
"""

from __future__ import annotations

import numpy as np

from onnxq.json_file import JsonObject
from onnxq.ptq.method import Improved, State, Task, above, improvement, limits, one_of
from onnxq.ptq.weights.gptq_matrix import Grid, gptq_matrix, gptq_stack, output_errors
from onnxq.ptq.weights.layers import INPUTS, Layers, layers_of, quantized_weights, with_moments, write_chosen
from onnxq.ptq.weights.own_scales import Sharing
from onnxq.types import PerBlock, QParams


@improvement(
    "gptq",
    "weights rounded so that the columns that are left make up for the error of those that are done",
    "Frantar et al. 2022",
    {"damp": 0.01, "act_order": True, "inputs": "quantized", "recompute": False},
    rounds=True,
    check=limits("gptq", damp=above(0), inputs=one_of(*INPUTS)),
)
def gptq(state: State, task: Task, *, damp: float, act_order: bool, inputs: str, recompute: bool) -> Improved:
    """Round the weights of Conv, ConvTranspose, Gemm and MatMul; the graph then holds the values of the numbers.

    damp       part of the mean of H's diagonal that is added to it
    act_order  columns with the largest inputs first
    inputs     quantized or float
    recompute  weights in blocks along their inputs get new ranges on the way, instead of act_order
    """
    result = state.copy()
    placements, declined = quantized_weights(state)
    layers, others = layers_of(state, placements)
    declined += others
    sharing = Sharing(state.plan)
    changed: list[str] = []
    details: JsonObject = {}
    for layer, moments in with_moments(state, task, layers, inputs, "gptq", shrink=True):
        if isinstance(moments, str):
            declined.append(f"{layer.tensor}: {moments}")
            continue
        new_ranges = recompute and sharing.alone(layer.tensor) and _may_recompute(state, layer)
        done = _round(state, result, layer, moments, damp, act_order, new_ranges)
        if isinstance(done, str):
            declined.append(f"{layer.tensor}: {done}")
            continue
        before, after = done
        changed.append(f"{layer.tensor}: output error {before:.3g} -> {after:.3g}")
        details[layer.tensor] = {"nearest": before, "gptq": after}
    return Improved(result if changed else state, tuple(changed), tuple(declined), details=details)


def _round(
    state: State, result: State, layer: Layers, moments: np.ndarray, damp: float, act_order: bool, new_ranges: bool
) -> tuple[float, float] | str:
    """Write the rounded weight; returns its error before and after (mean over outputs), or why it stays."""
    name, view = layer.tensor, layer.view
    values = state.graph.values(name).astype(np.float32)
    weight = view.unfold(values)
    qparams = state.qparams[name]
    grid = Grid.of(qparams, view)
    if new_ranges:
        rounded, qparams = _with_new_ranges(values, moments, qparams, damp)
    else:
        rounded = view.fold(gptq_stack(weight, moments, grid, damp=damp, act_order=act_order))
    before = float(output_errors(weight - grid.nearest(weight), moments).mean())
    after = float(output_errors(weight - view.unfold(rounded), moments).mean())
    if after >= before:
        return f"its output error stays {before:.3g}, plain rounding is as good"
    if not write_chosen(result.graph, name, rounded, qparams):
        return f"{state.graph.dtype(name)} is too coarse to hold its numbers"
    if qparams is not state.qparams[name]:
        result.qparams.put(name, qparams, "gptq")
    return before, after


def _may_recompute(state: State, layer: Layers) -> bool:
    """Whether a weight is one matrix in blocks along what is multiplied, and its format does not limit its scales."""
    blocks, placement, view = state.qparams[layer.tensor].spec.granularity, layer.placement, layer.view
    inputs = 0 if view.order == (0, 2, 1) else 1
    limited = placement.minimum_scale > 0 or state.graph.dtype(placement.tensor) == np.float16
    along_inputs = isinstance(blocks, PerBlock) and len(view.shape) == 2 and blocks.axis % 2 == inputs
    return along_inputs and not limited


def _with_new_ranges(
    values: np.ndarray, moments: np.ndarray, qparams: QParams, damp: float
) -> tuple[np.ndarray, QParams]:
    """`gptq_matrix` with ranges found on the way, for a weight [outputs, inputs] or [inputs, outputs]."""
    blocks = qparams.spec.granularity
    assert isinstance(blocks, PerBlock)
    turned = blocks.axis % 2 == 0
    of_matrix = qparams.spec.replace(granularity=PerBlock(1, blocks.size))
    scale, zero_point = (qparams.scale.T, qparams.zero_point.T) if turned else (qparams.scale, qparams.zero_point)
    rounded, found = gptq_matrix(
        values.T if turned else values,
        moments[0],
        QParams(of_matrix, scale, zero_point),
        damp=damp,
        act_order=False,
        recompute=True,
    )
    if not turned:
        return rounded, QParams(qparams.spec, found.scale, found.zero_point)
    return np.ascontiguousarray(rounded.T), QParams(qparams.spec, found.scale.T, found.zero_point.T)
