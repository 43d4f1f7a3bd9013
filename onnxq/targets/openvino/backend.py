"""OpenVINO: quantizers on the inputs of layers, 7-bit weights per channel, uint8 where nothing is negative.

OpenVINO reads Q/DQ models and FakeQuantize nodes of its own; both are written. Its plugins move the scales of a layer's
input behind the layer and compute in integers, so that results need no quantizers of their own: the last layer gives
floats. Sums that are normalized stay float. Activations are symmetric unless asked for otherwise, and unsigned behind a
Relu, with all 256 steps for what is not negative. Weights use 7 of their 8 bits: processors without VNNI add two
products in 16 bits, and 255 * 127 * 2 does not fit into them.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.targets import BACKENDS
from onnxq.targets.half_rest import half_rest, rest_option
from onnxq.types import Backend, KnownAs, Limits, NodeFacts, OpRule, Option, PerChannel, QuantSpec, Scheme
from onnxq.types.layer_rules import CONVOLUTIONS
from onnxq.types.presets import (
    STANDARD_PASSES,
    declines_constant_operand,
    declines_interpolation,
    gemm_weight_axis,
    matmul_weight_axis,
)
from onnxq.types.vendor_step import VendorStep

MOVING = ("MaxPool", "Flatten", "Resize")
"""Operators that OpenVINO runs on integers as they come: what stands on both sides of one has the same scale."""


def _declines_add(node: NodeFacts) -> str | None:
    """In a transformer the sum of a residual branch has outliers that one scale would sacrifice all else to."""
    if node.is_normalized():
        return "a normalization reads its result, which computes in float: integers would cost accuracy for nothing"
    return declines_constant_operand(node)


_SEVEN_BITS = "OPENVINO uses 7 bits of a weight, so that sums do not overflow; the backend openvino:weights=int8 has 8"


def configure(values: Mapping[str, str]) -> Backend:
    academic, asymmetric = values["academic"] == "yes", values["activations"] == "asymmetric"
    weight = QuantSpec(values["weights"], narrow_range=academic, granularity=PerChannel(0))
    rules = [
        *CONVOLUTIONS,
        OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis),
        OpRule(("MatMul",), inputs=(0,), weight=1, weight_axis=matmul_weight_axis),
        OpRule(("Add",), inputs=(0, 1), decline=_declines_add),
        OpRule(("MaxPool", "AveragePool", "GlobalAveragePool", "Flatten", "ReduceMean", "ReduceSum")),
        OpRule(("Resize",), decline=declines_interpolation),
    ]
    if academic:
        rules.append(OpRule(("Concat",), inputs=None))
    return Backend(
        name="openvino",
        summary="OpenVINO: QDQ and FakeQuantize models, activations int8 or uint8 by sign, weights per channel",
        scheme=Scheme(
            activation=QuantSpec("uint8", symmetric=False) if asymmetric else QuantSpec("int8"),
            weight=weight,
            unsigned=None if asymmetric else QuantSpec("uint8"),
        ),
        rules=tuple(rules),
        tied=(*MOVING, "Concat"),
        quantize_inputs=True,
        outlier_format="float",
        limits=Limits(
            dtypes=("int8", "uint8"),
            zero_point_zero=not asymmetric,
            weights_symmetric=True,
            min_opset=10,
            float_types=("float32",),
            bias_quantized=False,
        ),
        passes=STANDARD_PASSES,
        known_as=(KnownAs("OPENVINO", weight_bits=_SEVEN_BITS if weight.dtype == "int7" else ""),),
        emitters=("qdq", "fake_quantize"),
        vendor_steps=(
            VendorStep(
                "OpenVINO's converter takes the model with FakeQuantize",
                "ovc {fake_quantize} --output_model {name}.xml --compress_to_fp16=False",
            ),
            VendorStep(
                "OpenVINO measures it; a model with free sizes wants them: -data_shape [1,3,224,224]",
                "benchmark_app -m {fake_quantize} -d CPU -hint latency",
            ),
        ),
        rest=half_rest(values["rest"]),
        options=(
            Option("weights", ("int7", "int8"), "int7", "bits of a weight; 8 are safe on processors with VNNI"),
            Option("activations", ("symmetric", "asymmetric"), "symmetric", "zero points cost time and gain accuracy"),
            Option("academic", ("no", "yes"), "no", "weights without their lowest value, inputs of Concat quantized"),
            rest_option("fp16", "bf16"),
        ),
        configure=configure,
        checked_by=("openvino",),
    )


BACKENDS.add("openvino", configure({"weights": "int7", "activations": "symmetric", "academic": "no", "rest": "fp32"}))
