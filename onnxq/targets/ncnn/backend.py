"""ncnn: int8 from -127 to 127, symmetric; inputs of layers are quantized, their results are float.

ncnn computes 3x3 convolutions of stride 1 by Winograd's method in 16 bits, which holds weights of 6 bits. So
`winograd=on` (as ncnn2table does) gives those weights 6 bits; `winograd=off` gives them 8, and then the program that
runs the network must set `opt.use_winograd_convolution = false`.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.targets import BACKENDS
from onnxq.types import Backend, Limits, NodeFacts, OpRule, Option, PerChannel, QuantSpec, Scheme
from onnxq.types.presets import STANDARD_PASSES, declines_computed_weight, gemm_weight_axis, matmul_weight_axis
from onnxq.types.vendor_step import VendorStep


def _not_a_convolution_of_images(node: NodeFacts) -> str | None:
    if reason := declines_computed_weight(node):
        return reason
    rank = len(node.shape(1) or ())
    return None if rank == 4 else f"ncnn has int8 convolutions of images only, this one has {rank - 2} dimension(s)"


def _not_a_layer(node: NodeFacts) -> str | None:
    if not node.is_constant(1) or len(node.shape(1) or ()) != 2:
        return "ncnn has int8 products with a constant matrix only"
    return None


def _weight_axis(node: NodeFacts) -> int | None:
    """Output channels; a grouped convolution has one scale for each group, which is a channel if it is depthwise."""
    groups = node.attrs.get("group", 1)
    return 0 if groups in (1, (node.shape(1) or (None,))[0]) else None


def configure(values: Mapping[str, str]) -> Backend:
    return Backend(
        name="ncnn",
        summary="ncnn: int8 symmetric, weights per channel, with the calibration table for ncnn2int8",
        scheme=Scheme(
            activation=QuantSpec("int8", narrow_range=True, rounding="half_away"),
            weight=QuantSpec("int8", narrow_range=True, rounding="half_away", granularity=PerChannel(0)),
        ),
        rules=(
            OpRule(("Conv",), weight=1, weight_axis=_weight_axis, bias=2, decline=_not_a_convolution_of_images),
            OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, bias=2, decline=_not_a_layer),
            OpRule(("MatMul",), weight=1, weight_axis=matmul_weight_axis, decline=_not_a_layer),
        ),
        rounding_in_files="half_even",
        limits=Limits(
            dtypes=("int8",),
            zero_point_zero=True,
            min_opset=13,
            bias_quantized=False,
            steps=((-127, 127),),
            roundings=("half_away",),
        ),
        passes=STANDARD_PASSES,
        emitters=("qdq", "deploy", "ncnn_table"),
        vendor_steps=(
            VendorStep(
                "ncnn's converter (or pnnx, whose layers have other names)",
                "onnx2ncnn {deploy} {name}.param {name}.bin",
            ),
            VendorStep(
                "ncnn2int8 quantizes what that has written, with the table",
                "ncnn2int8 {name}.param {name}.bin {name}_int8.param {name}_int8.bin {ncnn_table}",
            ),
        ),
        refinements=("ncnn_winograd",) if values["winograd"] == "on" else (),
        options=(
            Option(
                "winograd",
                ("on", "off"),
                "on",
                "off: 8 bits for 3x3 convolutions too, for programs that set use_winograd_convolution = false",
            ),
        ),
        configure=configure,
        checked_by=("ncnn",),
    )


BACKENDS.add("ncnn", configure({"winograd": "on"}))
