"""Operators by what their inputs and results mean to other nodes."""

from __future__ import annotations

from collections.abc import Mapping

DECIDED: Mapping[str, tuple[int, ...]] = {
    "If": (0,),
    "Loop": (0, 1),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Gather": (1,),
    "GatherElements": (1,),
    "GatherND": (1,),
    "NonMaxSuppression": (2,),
    "OneHot": (0, 1),
    "Pad": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Scatter": (1,),
    "ScatterElements": (1,),
    "ScatterND": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Operator -> inputs that say which way to go, what to take or how large something is."""

LAYERS = frozenset(
    (
        *("Conv", "ConvTranspose", "DeformConv", "Gemm", "MatMul", "Einsum", "LSTM", "GRU", "RNN", "Attention"),
        *("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"),
        *("FusedConv", "FusedGemm", "FusedMatMul", "MultiHeadAttention", "GroupQueryAttention"),
    )
)
"""Weighted layers: what they compute is rounded with the weights in any case."""
