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

from dataclasses import dataclass

import numpy as np

from onnxq.json_file import JsonObject
from onnxq.numerics import fake_quantize
from onnxq.ptq.method import Improved, State, Task, improvement, limits, one_of
from onnxq.ptq.weights.layers import INPUTS, Layers, layers_of, with_thin_moments
from onnxq.ptq.weights.moments import ThinMoments
from onnxq.ptq.weights.output_errors import form_of
from onnxq.ptq.weights.own_scales import Sharing, put_shared, searchable_weights, shared_values
from onnxq.ptq.weights.scale_search import (
    candidates,
    has_many_bits,
    has_whole_rows,
    search_by_outputs,
    search_by_weights,
)
from onnxq.runtime.workers import in_threads
from onnxq.types import Placement, QParams

ROWS, ROWS_OF_FEW_BITS = 128, 512
"""Inputs of a wide layer by which the error of its outputs is measured; with 8 bits few weights are worth clipping.
With 64 a transformer lost 0.7 dB, MobileNetV2 0.3."""

LARGE_TABLE = 2**20
TABLE = "a large table that no layer multiplies with has little to gain with so many bits"
"""Values, and what is said of weights that have more of them: a vocabulary took longer than all layers together."""

SOURCE = "weight_search"
"""What qparams.json says of parameters that were found here, as files of earlier versions do."""


@improvement(
    "weight_scale_search",
    "scales of weights with the least error of the outputs, or of the weights",
    "Banner et al. 2019; Lin et al. 2023 (clipping)",
    {"objective": "outputs", "inputs": "quantized"},
    check=limits("weight_scale_search", objective=one_of("outputs", "weights"), inputs=one_of(*INPUTS)),
    expected_db=1.5,
    aliases=("weight_search",),
)
def weight_scale_search(state: State, task: Task, *, objective: str, inputs: str) -> Improved:
    """Choose the scales (and zero points) of all quantized weights.

    objective  outputs: error of the layer's outputs on the samples; weights without such layers (tables of
               embeddings, weights that share a scale) are searched by their own error. weights: all of them
    inputs     quantized or float: whose activations the outputs are computed with
    """
    result = state.with_own_parameters()
    sharing, own, declined = searchable_weights(state)
    changed: list[str] = []
    details: JsonObject = {}
    layers: list[Layers] = []
    if objective == "outputs":
        alone = [placement for placement in own if sharing.alone(placement.tensor)]
        layers, _ = layers_of(state, alone)
    seen = with_thin_moments(state, task, layers, inputs, "weight_scale_search", _kept_rows)
    for layer, outcome in in_threads(lambda item: (item[0], _by_outputs(state, *item)), seen):
        if isinstance(outcome, str):
            declined.append(f"{layer.tensor}: {outcome}")
            continue
        if outcome is not None:
            result.qparams.put(layer.tensor, outcome.qparams, SOURCE)
        _note(layer.tensor, outcome, changed, declined, details)
    by_outputs = {layer.tensor for layer in layers}
    others_alone = []
    for placement in own:
        large = objective == "outputs" and state.graph.values(placement.tensor).size > LARGE_TABLE
        if large and has_many_bits(placement.spec) and placement.tensor not in by_outputs:
            declined.append(f"{placement.tensor}: {TABLE}")
        elif placement.tensor not in by_outputs:
            others_alone.append(placement)
    for placement, found in in_threads(lambda each: (each, _by_weights(state, each, sharing)), others_alone):
        if found is not None:
            put_shared(result.qparams, sharing, placement.tensor, found.qparams, SOURCE)
        _note(placement.tensor, found, changed, declined, details)
    return Improved(result if changed else state, tuple(changed), tuple(declined), details=details)


@dataclass(frozen=True)
class Found:
    """Parameters that are better than those that were there, and the mean error before and after."""

    qparams: QParams
    before: float
    after: float


def _kept_rows(layer: Layers) -> int:
    """How many inputs of a layer stand for their second moments; 0 makes the moments themselves."""
    rows = ROWS if has_many_bits(layer.placement.spec) else ROWS_OF_FEW_BITS
    wide = layer.view.matrices[2] > rows and has_whole_rows(layer.view, layer.placement.spec.granularity)
    return rows if wide else 0


def _note(tensor: str, found: Found | None, changed: list[str], declined: list[str], details: JsonObject) -> None:
    if found is None:
        declined.append(f"{tensor}: no other scale has a smaller error")
        return
    changed.append(f"{tensor}: error {found.before:.3g} -> {found.after:.3g}")
    details[tensor] = {"before": found.before, "after": found.after}


def _by_outputs(state: State, layer: Layers, moments: np.ndarray | ThinMoments | str) -> Found | str | None:
    """New parameters for the weight of a layer, by the mean error of an output; or why nothing is known of it."""
    if isinstance(moments, str):
        return moments
    values, held = state.graph.values(layer.tensor).astype(np.float32), state.qparams[layer.tensor]
    of = candidates(values, held, layer.placement.minimum_scale, state.graph.dtype(layer.tensor) == np.float16)
    found = search_by_outputs(values, held, of, layer.view, moments)

    form = form_of(moments)

    def error(qparams: QParams) -> float:
        return float(form.errors(layer.view.unfold(values - fake_quantize(values, qparams))).mean())

    before, after = error(held), error(found)
    return Found(found, before, after) if after < before else None


def _by_weights(state: State, placement: Placement, sharing: Sharing) -> Found | None:
    """New parameters for a weight and all that share its scale, by their mean squared error."""
    held, values = state.qparams[placement.tensor], shared_values(state.graph, sharing, placement.tensor)
    of = candidates(values, held, placement.minimum_scale, state.graph.dtype(placement.tensor) == np.float16)
    found = search_by_weights(values, held, of)

    def error(qparams: QParams) -> float:
        return float(np.square(values - fake_quantize(values, qparams), dtype=np.float64).mean())

    before, after = error(held), error(found)
    return Found(found, before, after) if after < before else None
