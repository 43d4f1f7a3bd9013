"""OpenVINO: quantizers on the inputs of layers, 7-bit weights per channel, uint8 where nothing is negative.

OpenVINO reads Q/DQ models and FakeQuantize nodes of its own; both are written. Its plugins move the scales of a layer's
input behind the layer and compute in integers, so that results need no quantizers of their own: the last layer gives
floats. Activations are symmetric, and unsigned behind a Relu, with all 256 steps for what is not negative. Weights use
7 of their 8 bits: processors without VNNI add two products in 16 bits, and 255 * 127 * 2 does not fit into them.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.backends import BACKENDS
from onnxq.types import Backend, Limits, NodeFacts, OpRule, Option, PerChannel, QuantSpec, Scheme
from onnxq.types.presets import (
    CLEAN_UP,
    FOLD_LAYERS,
    RECOGNIZE,
    SETTLE,
    conv_transpose_weight_axis,
    declines_computed_weight,
    gemm_weight_axis,
    matmul_weight_axis,
)

MOVING = ("MaxPool", "Flatten", "Resize")
"""Operators that OpenVINO runs on integers as they come: what stands on both sides of one has the same scale."""


def _adds_a_constant(node: NodeFacts) -> str | None:
    if node.is_constant(0) or node.is_constant(1):
        return "adds a constant, which OpenVINO computes together with the layer in front"
    return None


def _computes_between(node: NodeFacts) -> str | None:
    mode = node.attrs.get("mode", "nearest")
    return None if mode == "nearest" else f"mode '{mode}' computes new values, OpenVINO does that in float"


def configure(values: Mapping[str, str]) -> Backend:
    academic = values["academic"] == "yes"
    weight = QuantSpec(values["weights"], narrow_range=academic, granularity=PerChannel(0))
    rules = [
        OpRule(("Conv",), weight=1, weight_axis=0, decline=declines_computed_weight),
        OpRule(("ConvTranspose",), weight=1, weight_axis=conv_transpose_weight_axis, decline=declines_computed_weight),
        OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis),
        OpRule(("MatMul",), inputs=(0,), weight=1, weight_axis=matmul_weight_axis),
        OpRule(("Add",), inputs=(0, 1), decline=_adds_a_constant),
        OpRule(("MaxPool", "AveragePool", "GlobalAveragePool", "Flatten", "ReduceMean", "ReduceSum")),
        OpRule(("Resize",), decline=_computes_between),
    ]
    if academic:
        rules.append(OpRule(("Concat",), inputs=None))
    return Backend(
        name="openvino",
        summary="OpenVINO: QDQ and FakeQuantize models, activations int8 or uint8 by sign, weights per channel",
        scheme=Scheme(
            activation=QuantSpec("int8"),
            weight=weight,
            unsigned=QuantSpec("uint8"),
        ),
        rules=tuple(rules),
        tied=(*MOVING, "Concat"),
        quantize_inputs=True,
        limits=Limits(
            dtypes=("int8", "uint8"),
            zero_point_zero=True,
            min_opset=10,
            float_types=("float32",),
            bias_quantized=False,
        ),
        passes=(*CLEAN_UP, "widen_bfloat16", "widen_float16", *FOLD_LAYERS, *RECOGNIZE, *SETTLE),
        emitters=("qdq", "fake_quantize"),
        options=(
            Option("weights", ("int7", "int8"), "int7", "bits of a weight; 8 are safe on processors with VNNI"),
            Option("academic", ("no", "yes"), "no", "weights without their lowest value, inputs of Concat quantized"),
        ),
        configure=configure,
        checked_by=("openvino",),
    )


BACKENDS.add("openvino", configure({"weights": "int7", "academic": "no"}))
