"""TensorRT for transformers as MQBench places it: Linear, MatMul and the Adds between them; embedding tables too.

In contrast to `tensorrt`, both inputs of a residual Add are quantized: there is no convolution that could take one of
them. Adds of a constant (biases) and the Adds that scale or mask attention scores stay as they are.
"""

from __future__ import annotations

from onnxq.backends import BACKENDS
from onnxq.types import Backend, Limits, NodeFacts, OpRule, PerChannel, QuantSpec, Scheme
from onnxq.types.presets import CLEAN_UP, RECOGNIZE, SETTLE, gemm_weight_axis, matmul_weight_axis


def declines_constant_operand(node: NodeFacts) -> str | None:
    if any(node.is_constant(port) for port in range(node.input_count)):
        return "one of its operands is a constant: it is computed together with its neighbours"
    return None


def _declines_add(node: NodeFacts) -> str | None:
    if any(node.made_by(port) == "Gather" for port in range(node.input_count)):
        return "it adds an embedding, which is no layer's result"
    return declines_constant_operand(node)


def declines_other_gathers(node: NodeFacts) -> str | None:
    """A reason to leave a Gather float that does not look up rows of a table of embeddings."""
    if not node.is_constant(0) or len(node.shape(0) or ()) != 2 or node.attrs.get("axis", 0) != 0:
        return "it does not look up rows of a constant table"
    return None if node.dtype(0) in ("float32", "float16") else f"its table holds {node.dtype(0)} values"


BACKENDS.add(
    "tensorrt_nlp",
    Backend(
        name="tensorrt_nlp",
        summary="NVIDIA TensorRT, placement for transformers: Linear, MatMul, Add and embeddings, INT8 symmetric",
        scheme=Scheme(activation=QuantSpec("int8"), weight=QuantSpec("int8", granularity=PerChannel(0))),
        rules=(
            OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis),
            OpRule(("MatMul",), weight=1, weight_axis=matmul_weight_axis),
            OpRule(("Add",), inputs=(0, 1), decline=_declines_add),
            OpRule(("Gather",), inputs=(), weight=0, weight_axis=1, decline=declines_other_gathers),
        ),
        unquantized_pairs=(("Add", "Mul"), ("Add", "Div")),
        weight_storage="float",
        limits=Limits(
            dtypes=("int8", "int4", "float8e4m3fn"),
            weight_only_dtypes=("int4",),
            zero_point_zero=True,
            min_opset=10,
            float_types=("float32", "float16"),
            bias_quantized=False,
        ),
        passes=(*CLEAN_UP, "widen_bfloat16", "canonicalize_gemm", *RECOGNIZE, *SETTLE),
        checked_by=("onnxruntime",),
    ),
)
