"""TensorRT for transformers as MQBench places it: Linear, MatMul and the Adds between them; embedding tables too.

In contrast to `tensorrt`, both inputs of a residual Add are quantized: there is no convolution that could take one of
them. Adds of a constant (biases) and the Adds that scale or mask attention scores stay as they are.
"""

from __future__ import annotations

from onnxq.targets import BACKENDS
from onnxq.targets.tensorrt.engine_steps import EXPLICIT
from onnxq.targets.tensorrt.tensorrt import LIMITS
from onnxq.types import Backend, KnownAs, NodeFacts, OpRule, PerChannel, QuantSpec, Scheme
from onnxq.types.layer_rules import TRANSFORMER_LAYERS
from onnxq.types.presets import CLEAN_UP, DECOMPOSE, RECOGNIZE, SETTLE, declines_constant_operand


def _declines_add(node: NodeFacts) -> str | None:
    if any(node.made_by(port) == "Gather" for port in range(node.input_count)):
        return "it adds an embedding, which is no layer's result"
    return declines_constant_operand(node)


BACKENDS.add(
    "tensorrt_nlp",
    Backend(
        name="tensorrt_nlp",
        summary="NVIDIA TensorRT, placement for transformers: Linear, MatMul, Add and embeddings, INT8 symmetric",
        scheme=Scheme(activation=QuantSpec("int8"), weight=QuantSpec("int8", granularity=PerChannel(0))),
        rules=(
            *TRANSFORMER_LAYERS,
            OpRule(("Add",), inputs=(0, 1), decline=_declines_add),
        ),
        unquantized_pairs=(("Add", "Mul"), ("Add", "Div")),
        outlier_format="float",
        weight_storage="float",
        float8_pairs="plain",
        limits=LIMITS,
        passes=(*CLEAN_UP, *DECOMPOSE, "widen_bfloat16", "canonicalize_gemm", *RECOGNIZE, *SETTLE),
        known_as=(KnownAs("Tensorrt_NLP"),),
        vendor_steps=EXPLICIT,
        lints=("tensorrt_parser",),
        checked_by=("onnxruntime",),
    ),
)
