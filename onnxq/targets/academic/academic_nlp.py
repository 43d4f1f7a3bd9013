"""Settings of research papers for transformers: Linear, MatMul and embedding tables, with any number of bits."""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.targets import BACKENDS
from onnxq.targets.academic.academic import DTYPES, OPTIONS, academic_scheme
from onnxq.types import Backend, KnownAs, Limits
from onnxq.types.layer_rules import TRANSFORMER_LAYERS
from onnxq.types.presets import RECOGNIZE, SETTLE, TO_FLOAT32


def _configure(values: Mapping[str, str]) -> Backend:
    return Backend(
        name="academic_nlp",
        summary="research settings for transformers: Linear, MatMul and embeddings with any number of bits",
        scheme=academic_scheme(values, ends=False),
        rules=TRANSFORMER_LAYERS,
        fused_activations=(),
        limits=Limits(dtypes=DTYPES, bias_quantized=False, activations_per_tensor=False, refused_operators=()),
        passes=(*TO_FLOAT32, "canonicalize_gemm", *RECOGNIZE, *SETTLE),
        options=OPTIONS,
        configure=_configure,
        known_as=(KnownAs("Academic_NLP", formats="given"),),
        checked_by=("onnxruntime",),
    )


BACKENDS.add("academic_nlp", _configure({option.name: option.default for option in OPTIONS}))
