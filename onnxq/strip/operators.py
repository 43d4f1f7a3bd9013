"""The operators of quantized models, of ONNX and of onnxruntime."""

from __future__ import annotations

MICROSOFT = "com.microsoft"

QUANTIZED_OPS = frozenset(
    {
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "ConvInteger",
        "MatMulInteger",
        "MatMulInteger16",
        "MulInteger",
        "ReduceSumInteger",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
        "DynamicQuantizeLSTM",
        "MatMulNBits",
        "MatMulNBitsQkv",
        "MatMulNBitsMlp",
        "MatMulBnb4",
        "MatMulBlockQuantizedFp4Weight",
        "MatMulBlockQuantizedFp8Weight",
        "GatherBlockQuantized",
        "QGemm",
        "QAttention",
        "QEmbedLayerNormalization",
        "QMoE",
        "QuantizeBFP",
        "DequantizeBFP",
        "QuantizeWithOrder",
        "DequantizeWithOrder",
    }
)
"""Besides those whose names begin with QLinear or QOrdered."""


def is_quantized(op: str) -> bool:
    """Whether an operator reads or makes quantized numbers, or quantizes inside."""
    return op in QUANTIZED_OPS or op.startswith(("QLinear", "QOrdered"))


def is_dynamic(op: str) -> bool:
    """Whether an operator finds the scale of an activation anew in every run."""
    return op.startswith("DynamicQuantize")
