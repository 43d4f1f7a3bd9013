"""What targets have in common: pass sequences, where the channels of a weight are, reasons to leave a node float."""

from __future__ import annotations

from onnxq.types.attributes import AttributeValues
from onnxq.types.backend import NodeFacts

CLEAN_UP = (
    "remove_dead",
    "constants_to_initializers",
    "propagate_loop_constants",
    "fold_constants",
    "remove_identity",
    "remove_dropout",
)
"""What nobody reads is gone first: a dead reader of a tensor would keep the layer in front of it from being folded.
Constants as initializers, also where a loop hands them on, computed where they can be; nodes that do nothing are
gone."""

OF_ONNXRUNTIME = ("decompose_packed_attention", "decompose_fused_conv")
"""Operators of com.microsoft that hold weights or are layers themselves, for targets that run in onnxruntime."""

DECOMPOSE = (
    *OF_ONNXRUNTIME,
    "decompose_attention",
    "decompose_multi_head_attention",
    "decompose_group_query_attention",
    "decompose_rotary_embedding",
    "decompose_skip_layernorm",
    "decompose_rms_normalization",
    "decompose_gelu",
    "decompose_swish",
    "fold_constants",
)
"""Attention, norms and activations that are one operator in onnxruntime and in ONNX from opset 23 on, in small ones.

Before floats are widened: those of other domains would keep the narrow type.
"""

WIDEN = ("widen_bfloat16", "widen_float16")

TO_FLOAT32 = (*CLEAN_UP, *DECOMPOSE, *WIDEN)
"""For targets that take the narrow float types nowhere."""

FOLD_LAYERS = (
    "canonicalize_gemm",
    "fuse_conv_bias",
    "fold_batchnorm",
    "fuse_conv_scale",
    "fuse_conv_bias",
    "relu6_as_clip",
)
"""Everything per channel around a layer becomes part of its weight and bias. Biases are fused twice: in front of a
BatchNormalization, and behind one that was just folded."""

RECOGNIZE = ("recognize_layernorm", "recognize_gelu", "recognize_hardswish", "fuse_matmul_add")
"""Groups of nodes that targets compute as one."""

SETTLE = ("split_shared_weights", "remove_dead")
"""Constants that are needed in two formats are two constants; what nobody reads after all these changes is gone."""

STANDARD_PASSES = (*TO_FLOAT32, *FOLD_LAYERS, *RECOGNIZE, *SETTLE)
"""What most targets want of a graph."""

_ATTENTION = "attention in one float kernel: in parts, integers would be made and undone around each softmax"
_NORM = "a norm in one float kernel, whose sums need more than 8 bits"
_POSITIONS = "rotary positions in one float kernel, in front of an attention that is float"
_GELU = "an activation in one float kernel"
WHOLE_IN_ONNXRUNTIME = {
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention", "SparseAttention"), _ATTENTION),
    **dict.fromkeys(("DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention", "DecoderAttention"), _ATTENTION),
    "LinearAttention": _ATTENTION,
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), _NORM),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization"), _NORM),
    "RotaryEmbedding": _POSITIONS,
    **dict.fromkeys(("Gelu", "BiasGelu", "FastGelu", "QuickGelu", "Swish", "HardSwish"), _GELU),
}
"""Operators that onnxruntime computes in float, of ONNX and of com.microsoft, and why."""

ONNXRUNTIME_PASSES = (*CLEAN_UP, *OF_ONNXRUNTIME, *WIDEN, *FOLD_LAYERS, *RECOGNIZE, "hardswish_as_operator", *SETTLE)
"""What onnxruntime wants: its own operators stay whole, it has kernels for them."""


def gemm_weight_axis(node: NodeFacts) -> int:
    """Output channels of a Gemm weight: rows when it is stored transposed."""
    return 0 if node.attrs.get("transB", 0) else 1


def matmul_weight_axis(node: NodeFacts) -> int | None:
    """Columns of a matrix; a stack of matrices gets one scale."""
    return 1 if len(node.shape(1) or ()) == 2 else None


def conv_transpose_weight_axis(node: NodeFacts) -> int | None:
    """Channels of a ConvTranspose weight [in, out / group, ...]; with groups one scale per channel does not fit."""
    return 1 if node.attrs.get("group", 1) == 1 else None


def usual_weight_axis(node: NodeFacts) -> int | None:
    """Output channels of a layer's weight, for targets that give such weights one scale by themselves."""
    own = {"Conv": 0, "Gather": 1}
    if node.op in own:
        return own[node.op]
    axes = {"Gemm": gemm_weight_axis, "MatMul": matmul_weight_axis, "ConvTranspose": conv_transpose_weight_axis}
    return axes[node.op](node) if node.op in axes else None


def usual_block_axis(node: NodeFacts) -> int | None:
    """The axis of a layer's weight along which its products are summed up, where blocks of values share a scale.

    Rows of a table of embeddings are the columns of the layer that multiplies with the same table at the other end of
    a language model. None for an operator without such an axis.
    """
    if node.op == "MatMul":
        return max(len(node.shape(1) or ()) - 2, 0)
    own = {"Conv": 1, "Gather": 1, "Transpose": 1, "Gemm": 1 if node.attrs.get("transB", 0) else 0}
    return own.get(node.op)


def summed_axis(op: str, port: int, attrs: AttributeValues) -> int | None:
    """The axis of a layer's data, or of the matrix at the other port, along which its products are summed up."""
    if op == "MatMul":
        return -1 - port
    if op == "Gemm" and port < 2:
        return int(bool(attrs.get("transB", 0))) if port else 1 - int(bool(attrs.get("transA", 0)))
    return 1 if op in ("Conv", "ConvTranspose") and port == 0 else None


def declines_computed_weight(node: NodeFacts) -> str | None:
    """A reason to leave a layer float whose weight is not a constant."""
    return None if node.is_constant(1) else "its weight is computed at run time"


def declines_constant_operand(node: NodeFacts) -> str | None:
    """A reason to leave an Add float that is no meeting of two computed tensors."""
    return "adds a constant" if any(node.is_constant(port) for port in range(node.input_count)) else None


def declines_interpolation(node: NodeFacts) -> str | None:
    """A reason to leave a Resize float that does not repeat values of its input."""
    mode = node.attrs.get("mode", "nearest")
    return None if mode == "nearest" else f"mode '{mode}' computes new values between those of its input"


def declines_padding_value(node: NodeFacts) -> str | None:
    """A reason to leave a Pad float: ranges always hold 0, and need not hold what else it puts in."""
    if node.attrs.get("mode", "constant") != "constant":
        return None
    value = node.scalar(2) if node.has(2) else node.attrs.get("value", 0.0)
    return None if value == 0 else "pads with another value than 0, which need not fit the range of its input"


def declines_other_gathers(node: NodeFacts) -> str | None:
    """A reason to leave a Gather float that does not look up rows of a table of embeddings."""
    if not node.is_constant(0) or len(node.shape(0) or ()) != 2 or node.attrs.get("axis", 0) not in (0, -2):
        return "it does not look up rows of a constant table"
    return None if node.dtype(0) in ("float32", "float16") else f"its table holds {node.dtype(0)} values"
