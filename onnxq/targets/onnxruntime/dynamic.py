"""onnxruntime with activations=dynamic: weights are stored as int8, activations become integers in each run.

No sample is needed, since nothing about activations is stored: every run finds their ranges. That costs some time in
front of each layer, and gains most where matrix products do the work: transformers and recurrent networks. Products of
two computed matrices stay float, as do convolutions in groups, which onnxruntime computes several times slower in
integers than in floats, and what is small.
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

LEAST_CONVOLUTION, LEAST_ROW = 2**17, 2**16
"""Numbers of a weight from which a convolution, and the product of a single row, are sure to be faster in integers.

Quantizing what is read and making floats of the sums takes as long as some 50,000 products of a row. A convolution of
that size with a few positions takes 1.4 times as long as one of floats, and all those of MobileNetV2 take 1.45 times as
long, as the float ones around them lose their layout."""

_SMALL = (
    "it is small: quantizing what it reads takes longer than its products in integers save. "
    "onnxruntime:activations=dynamic,small=integers quantizes it for the size of the file"
)


def _is_smaller(node: NodeFacts, least: int) -> bool:
    weights = node.shape(1)
    return weights is not None and math.prod(size or 1 for size in weights) < least


def _has_one_row(node: NodeFacts) -> bool:
    """Whether a product reads one row, or one for each sample of a batch of any size."""
    read = node.shape(0)
    return read is not None and ((len(read) == 2 and read[0] is None) or all(size == 1 for size in read[:-1]))


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


def _where_it_gains(rule: OpRule) -> OpRule:
    """The rule for layers that are large enough to be faster in integers."""

    def decline(node: NodeFacts) -> str | None:
        reason = None if rule.decline is None else rule.decline(node)
        return _SMALL if reason is None and _is_small(node) else reason

    return replace(rule, decline=decline)


def _is_small(node: NodeFacts) -> bool:
    if node.op == "Conv":
        return _is_smaller(node, LEAST_CONVOLUTION)
    return node.op in ("Gemm", "MatMul") and _has_one_row(node) and _is_smaller(node, LEAST_ROW)


def with_dynamic_activations(static: Backend, *, small: bool) -> Backend:
    """The target, with activations that become integers at run time; tables of embeddings stay as they are.

    `small` layers are quantized too, which makes the file smaller and slower.
    """
    layers = DYNAMIC_LAYERS if small else tuple(_where_it_gains(rule) for rule in DYNAMIC_LAYERS)
    return static.replace(
        scheme=Scheme(activation=None, weight=static.scheme.weight),
        rules=(*layers, *static.rules_for("Gather")),
        same_scale=(),
        fused_activations=(),
        absorb_activations=False,
        limits=replace(static.limits, min_opset=11, bias_quantized=False),
        passes=(*TO_FLOAT32, *FOLD_LAYERS, "recognize_layernorm", *SETTLE, "prelu_as_max"),
        emitters=("dynamic_quantization",),
        simulations=("dynamic_activations",),
        integer_operators=True,
    )
