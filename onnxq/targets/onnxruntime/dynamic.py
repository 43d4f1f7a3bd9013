"""onnxruntime with activations=dynamic: weights are stored as int8, activations become integers in each run.

No sample is needed, since nothing about activations is stored: every run finds their ranges. That costs some time in
front of each layer, and gains most where matrix products do the work: transformers and recurrent networks. Products of
two computed matrices stay float, as do convolutions in groups, which onnxruntime computes several times slower in
integers than in floats, and small ones.
"""

from __future__ import annotations

import math
from dataclasses import replace

from onnxq.types import Backend, NodeFacts, OpRule, Scheme
from onnxq.types.presets import (
    FOLD_LAYERS,
    SETTLE,
    TO_FLOAT32,
    declines_computed_weight,
    gemm_weight_axis,
    matmul_weight_axis,
)

LEAST_CONVOLUTION = 2**16
"""Numbers of a weight from which a convolution of integers gains a fifth to a quarter of its time.

With 50,000 and a few positions it takes 1.4 times as long as one of floats; MobileNetV2 with all of its convolutions in
integers 1.45 times, as the float ones around them lose their layout."""

_GATES = 1
"""The axis of an LSTM's weights that has its gates, each with a row for every number of the state."""


def _declines_matmul(node: NodeFacts) -> str | None:
    if node.is_constant(1) and len(node.shape(1) or ()) < 2:
        return "its weight is a vector, too small to be worth it"
    return declines_computed_weight(node)


def _declines_gemm(node: NodeFacts) -> str | None:
    if node.attrs.get("alpha", 1.0) != 1.0 or node.attrs.get("beta", 1.0) != 1.0 or node.attrs.get("transA", 0):
        return "MatMulInteger is written for plain x * W + b only"
    return declines_computed_weight(node)


def _declines_conv(node: NodeFacts) -> str | None:
    if int(node.attrs.get("group", 1)) > 1:
        return "it has groups: onnxruntime's ConvInteger is slower there than its convolution of floats"
    weights = node.shape(1)
    if weights is not None and math.prod(size or 1 for size in weights) < LEAST_CONVOLUTION:
        return "it is small: quantizing what it reads takes longer than its products in integers save"
    return declines_computed_weight(node)


def _declines_lstm(node: NodeFacts) -> str | None:
    if not (node.is_constant(1) and node.is_constant(2)):
        return "its weights are computed at run time"
    if int(node.attrs.get("layout", 0)) != 0:
        return "DynamicQuantizeLSTM of onnxruntime has no layout 1"
    return None


DYNAMIC_LAYERS = (
    OpRule(("Conv",), weight=1, weight_axis=0, decline=_declines_conv),
    OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, decline=_declines_gemm),
    OpRule(("MatMul",), weight=1, weight_axis=matmul_weight_axis, decline=_declines_matmul),
    OpRule(("LSTM",), weight=1, state_weight=2, weight_axis=_GATES, decline=_declines_lstm),
)


def with_dynamic_activations(static: Backend) -> Backend:
    """The target, with activations that become integers at run time; tables of embeddings stay as they are."""
    return static.replace(
        scheme=Scheme(activation=None, weight=static.scheme.weight),
        rules=(*DYNAMIC_LAYERS, *static.rules_for("Gather")),
        same_scale=(),
        fused_activations=(),
        absorb_activations=False,
        limits=replace(static.limits, min_opset=11, bias_quantized=False),
        passes=(*TO_FLOAT32, *FOLD_LAYERS, "recognize_layernorm", *SETTLE, "prelu_as_max"),
        emitters=("dynamic_quantization",),
        simulations=("dynamic_activations",),
        integer_operators=True,
    )
