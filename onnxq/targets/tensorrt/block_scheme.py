"""TensorRT with MXFP8 or NVFP4: matrix products with constant weights, whose blocks have scales of their own."""

from __future__ import annotations

import dataclasses

from onnxq.types import Backend, NodeFacts, OpRule, PerBlock, QuantSpec, Scheme
from onnxq.types.layer_rules import CONVOLUTIONS
from onnxq.types.presets import declines_computed_weight, gemm_weight_axis, matmul_weight_axis
from onnxq.types.vendor_step import VendorStep

BLOCK_FORMATS = {"mxfp8": QuantSpec("mxfp8_e4m3", scale_rule="ceil"), "nvfp4": QuantSpec("nvfp4")}
"""The option's values; scales of MXFP8 are rounded up, so that nothing saturates, as NVIDIA has them."""

STEP = VendorStep(
    "trtexec of TensorRT 10.8 or newer, on GPUs with these formats (Blackwell); version 10 wants --stronglyTyped",
    "trtexec --onnx={tensorrt_blocks} --saveEngine={name}.plan",
)


def in_blocks(backend: Backend, name: str) -> Backend:
    """The target with one of these formats instead of int8; what cannot be cut into whole blocks stays float."""
    spec = BLOCK_FORMATS[name]
    blocks = spec.format.wanted_granularity(spec.granularity, None, None)
    assert isinstance(blocks, PerBlock)
    size = blocks.size

    def decline(node: NodeFacts) -> str | None:
        computed = declines_computed_weight(node)
        if computed is not None:
            return computed
        shape = node.shape(1) or ()
        summed = shape[1 if node.attrs.get("transB", 0) else len(shape) - 2] if len(shape) > 1 else None
        if isinstance(summed, int) and summed % size == 0:
            return None
        return f"it sums over {summed} numbers, which are no whole blocks of {size}"

    def convolution(node: NodeFacts) -> str | None:
        return f"{name} is for matrix products"

    return backend.replace(
        scheme=Scheme(
            activation=spec.replace(granularity=PerBlock(-1, size)), weight=spec.replace(granularity=PerBlock(0, size))
        ),
        rules=(
            *(dataclasses.replace(rule, decline=convolution) for rule in CONVOLUTIONS),
            OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, decline=decline),
            OpRule(("MatMul",), inputs=(0,), weight=1, weight_axis=matmul_weight_axis, decline=decline),
        ),
        limits=dataclasses.replace(
            backend.limits, dtypes=(*backend.limits.dtypes, spec.dtype), activations_per_tensor=False
        ),
        emitters=("qdq", "tensorrt_blocks"),
        vendor_steps=(STEP,),
        passes=tuple(step for step in backend.passes if step != "scale_queries"),
    )
