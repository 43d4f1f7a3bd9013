"""Settings of research papers for transformers: Linear, MatMul and embedding tables, with any number of bits."""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.backends import BACKENDS
from onnxq.backends.academic import DTYPES, OPTIONS, academic_scheme
from onnxq.backends.tensorrt_nlp import declines_other_gathers
from onnxq.types import Backend, Limits, OpRule
from onnxq.types.presets import CLEAN_UP, RECOGNIZE, SETTLE, gemm_weight_axis, matmul_weight_axis


def _configure(values: Mapping[str, str]) -> Backend:
    return Backend(
        name="academic_nlp",
        summary="research settings for transformers: Linear, MatMul and embeddings with any number of bits",
        scheme=academic_scheme(values, ends=False),
        rules=(
            OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis),
            OpRule(("MatMul",), weight=1, weight_axis=matmul_weight_axis),
            OpRule(("Gather",), inputs=(), weight=0, weight_axis=1, decline=declines_other_gathers),
        ),
        fused_activations=(),
        limits=Limits(dtypes=DTYPES, bias_quantized=False, refused_operators=()),
        passes=(*CLEAN_UP, "widen_bfloat16", "widen_float16", "canonicalize_gemm", *RECOGNIZE, *SETTLE),
        options=OPTIONS,
        configure=_configure,
        checked_by=("onnxruntime",),
    )


BACKENDS.add("academic_nlp", _configure({option.name: option.default for option in OPTIONS}))
