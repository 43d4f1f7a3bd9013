"""TensorRT, explicit quantization (QDQ): INT8, symmetric, per-channel weights, float biases.

TensorRT fuses what stands between a DequantizeLinear and the next QuantizeLinear, so quantizers go on the inputs of
weighted layers and nowhere else. Two rules are its own: of a residual Add only the skip input is quantized (the other
one is computed inside the convolution), and MaxPool, Reshape and the like get no quantizers because TensorRT swaps them
with the one behind. Sources: NVIDIA's Q/DQ placement recommendations; NvInfer.h (IQuantizeLayer, IDequantizeLayer).
"""

from __future__ import annotations

from onnxq.backends import BACKENDS
from onnxq.types import Backend, Limits, NodeFacts, OpRule, PerChannel, QuantSpec, Scheme


def _dynamic_weight(node: NodeFacts) -> str | None:
    return None if node.is_constant(1) else "its weight is computed at run time"


def _transposed_axis(node: NodeFacts) -> int | None:
    """Channels of a ConvTranspose weight [in, out / group, ...]; with groups one scale per channel does not fit."""
    return 1 if node.attrs.get("group", 1) == 1 else None


def _matmul_axis(node: NodeFacts) -> int | None:
    """Columns of a matrix; a stack of matrices gets one scale."""
    return 1 if len(node.shape(1) or ()) == 2 else None


def _gemm_axis(node: NodeFacts) -> int:
    return 0 if node.attrs.get("transB", 0) else 1


def _matrix_vector(node: NodeFacts) -> str | None:
    shape = node.output_shape()
    if shape is not None and (shape[-1:] == (1,) or shape[-2:-1] == (1,)):
        return "multiplies a matrix by a vector: INT8 gains nothing there"
    return None


BACKENDS.add(
    "tensorrt",
    Backend(
        name="tensorrt",
        summary="NVIDIA TensorRT 8.5 or newer: QDQ model, INT8 symmetric, weights per channel, biases float",
        scheme=Scheme(activation=QuantSpec("int8"), weight=QuantSpec("int8", granularity=PerChannel(0))),
        rules=(
            OpRule(("Conv",), weight=1, weight_axis=0, decline=_dynamic_weight),
            OpRule(("ConvTranspose",), weight=1, weight_axis=_transposed_axis, decline=_dynamic_weight),
            OpRule(("Gemm",), weight=1, weight_axis=_gemm_axis),
            OpRule(("MatMul",), inputs=(0,), weight=1, weight_axis=_matmul_axis, decline=_matrix_vector),
            OpRule(("Add",), inputs=(0, 1)),
        ),
        tied=("Concat",),
        commuting=(
            "MaxPool",
            "Reshape",
            "Flatten",
            "Transpose",
            "Squeeze",
            "Unsqueeze",
            "Concat",
            "Slice",
            "Split",
            "DepthToSpace",
            "SpaceToDepth",
            "Identity",
        ),
        residual="skip",
        weight_storage="float",
        limits=Limits(
            dtypes=("int8", "int4", "float8e4m3fn"),
            weight_only_dtypes=("int4",),
            zero_point_zero=True,
            min_opset=10,
            float_types=("float32", "float16"),
            bias_quantized=False,
        ),
        passes=(
            "constants_to_initializers",
            "fold_constants",
            "remove_identity",
            "remove_dropout",
            "widen_bfloat16",
            "canonicalize_gemm",
            "fuse_conv_bias",
            "fold_batchnorm",
            "fuse_conv_scale",
            "fuse_conv_bias",
            "relu6_as_clip",
            "recognize_layernorm",
            "recognize_gelu",
            "recognize_silu",
            "recognize_hardswish",
            "fuse_matmul_add",
            "split_shared_weights",
            "remove_dead",
        ),
    ),
)
