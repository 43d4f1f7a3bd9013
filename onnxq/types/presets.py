"""What several targets have in common: pass sequences, and where the channels of a weight are."""

from __future__ import annotations

from onnxq.types.backend import NodeFacts

CLEAN_UP = ("constants_to_initializers", "fold_constants", "remove_identity", "remove_dropout")
"""Constants as initializers, computed where they can be; nodes that do nothing are gone."""

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
"""Constants that are needed in two formats are two constants; what nobody reads is gone."""


def gemm_weight_axis(node: NodeFacts) -> int:
    """Output channels of a Gemm weight: rows when it is stored transposed."""
    return 0 if node.attrs.get("transB", 0) else 1


def matmul_weight_axis(node: NodeFacts) -> int | None:
    """Columns of a matrix; a stack of matrices gets one scale."""
    return 1 if len(node.shape(1) or ()) == 2 else None


def conv_transpose_weight_axis(node: NodeFacts) -> int | None:
    """Channels of a ConvTranspose weight [in, out / group, ...]; with groups one scale per channel does not fit."""
    return 1 if node.attrs.get("group", 1) == 1 else None


def declines_computed_weight(node: NodeFacts) -> str | None:
    """A reason to leave a layer float whose weight is not a constant."""
    return None if node.is_constant(1) else "its weight is computed at run time"
