"""Scales of weights chosen by the error that they cause, instead of by the largest value.

Banner, Nahshan, Soudry: "Post training 4-bit quantization of convolutional networks for rapid-deployment", 2019
(squared error of the weights); Lin et al.: "AWQ: Activation-aware Weight Quantization for LLM Compression and
Acceleration", 2023 (squared error of the outputs on real inputs, its search for clipping):

    min over scales of  |W - Q|^2        or        (W - Q) E[x xT] (W - Q)T

The search itself is in `onnxq.ptq.weights.scale_search`.

Whatever the format asks for is kept: zero points, powers of two, the smallest scale, one scale for tensors that are
tied. A range that the user has given is not touched.
"""

from __future__ import annotations

import numpy as np

from onnxq.json_file import JsonObject
from onnxq.numerics import fake_quantize
from onnxq.ptq.method import Improved, State, Task, improvement, limits, one_of
from onnxq.ptq.weights.gptq_matrix import output_errors
from onnxq.ptq.weights.layers import INPUTS, Layers, layers_of, quantized_weights, with_moments
from onnxq.ptq.weights.own_scales import Sharing, put_shared, shared_values, with_own_scale
from onnxq.ptq.weights.scale_search import candidates, search_by_outputs, search_by_weights
from onnxq.types import Placement, QParams

SOURCE = "weight_search"
"""What qparams.json says of parameters that were found here, as files of earlier versions do."""


@improvement(
    "weight_scale_search",
    "scales of weights with the least error of the outputs, or of the weights",
    "Banner et al. 2019; Lin et al. 2023 (clipping)",
    {"objective": "outputs", "inputs": "quantized"},
    check=limits("weight_scale_search", objective=one_of("outputs", "weights"), inputs=one_of(*INPUTS)),
    aliases=("weight_search",),
)
def weight_scale_search(state: State, task: Task, *, objective: str, inputs: str) -> Improved:
    """Choose the scales (and zero points) of all quantized weights.

    objective  outputs: error of the layer's outputs on the samples; weights without such layers (tables of
               embeddings, weights that share a scale) are searched by their own error. weights: all of them
    inputs     quantized or float: whose activations the outputs are computed with
    """
    result = state.copy()
    placements, declined = quantized_weights(state)
    sharing = Sharing(state.plan)
    own, others = with_own_scale(sharing, placements)
    declined += others
    changed: list[str] = []
    details: JsonObject = {}
    layers: list[Layers] = []
    if objective == "outputs":
        alone = [placement for placement in own if sharing.alone(placement.tensor)]
        layers, _ = layers_of(state, alone)
    for layer, moments in with_moments(state, task, layers, inputs, "weight_scale_search"):
        if isinstance(moments, str):
            declined.append(f"{layer.tensor}: {moments}")
        else:
            _note(layer.tensor, _by_outputs(state, result, layer, moments), changed, declined, details)
    by_outputs = {layer.tensor for layer in layers}
    for placement in own:
        if placement.tensor not in by_outputs:
            _note(placement.tensor, _by_weights(state, result, placement, sharing), changed, declined, details)
    return Improved(result if changed else state, tuple(changed), tuple(declined), details=details)


def _note(
    tensor: str,
    errors: tuple[float, float] | None,
    changed: list[str],
    declined: list[str],
    details: JsonObject,
) -> None:
    if errors is None:
        declined.append(f"{tensor}: no other scale has a smaller error")
        return
    before, after = errors
    changed.append(f"{tensor}: error {before:.3g} -> {after:.3g}")
    details[tensor] = {"before": before, "after": after}


def _by_outputs(state: State, result: State, layer: Layers, moments: np.ndarray) -> tuple[float, float] | None:
    """New parameters for the weight of a layer; returns the mean error of an output before and after."""
    values, held = state.graph.values(layer.tensor).astype(np.float32), state.qparams[layer.tensor]
    of = candidates(values, held, layer.placement.minimum_scale, state.graph.dtype(layer.tensor) == np.float16)
    found = search_by_outputs(values, held, of, layer.view, moments)

    def error(qparams: QParams) -> float:
        return float(output_errors(layer.view.unfold(values - fake_quantize(values, qparams)), moments).mean())

    before, after = error(held), error(found)
    if after >= before:
        return None
    result.qparams.put(layer.tensor, found, SOURCE)
    return before, after


def _by_weights(state: State, result: State, placement: Placement, sharing: Sharing) -> tuple[float, float] | None:
    """New parameters for a weight and all that share its scale; returns the mean squared error before and after."""
    held, values = state.qparams[placement.tensor], shared_values(state.graph, sharing, placement.tensor)
    of = candidates(values, held, placement.minimum_scale, state.graph.dtype(placement.tensor) == np.float16)
    found = search_by_weights(values, held, of)

    def error(qparams: QParams) -> float:
        return float(np.square(values - fake_quantize(values, qparams), dtype=np.float64).mean())

    before, after = error(held), error(found)
    if after >= before:
        return None
    put_shared(result.qparams, sharing, placement.tensor, found, SOURCE)
    return before, after
