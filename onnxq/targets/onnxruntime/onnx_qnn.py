"""QLinear operators (TVM's QNN dialect, onnxruntime): integers from operator to operator, no Q/DQ pairs in between.

Every tensor between quantized operators is asymmetric uint8 with one scale, and biases are int32 with the scale of
input times weight. An operator has its result's scale inside, so that results are quantized too, after a Relu or Clip,
which disappears into the saturation. Fully connected layers stay float unless asked for: the ONNX standard has no
QLinear operator with a bias for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.targets import BACKENDS
from onnxq.types import (
    Backend,
    KnownAs,
    Limits,
    NodeFacts,
    OpRule,
    Option,
    PerChannel,
    QuantSpec,
    SameScaleRule,
    Scheme,
)
from onnxq.types.layer_rules import RESIZE
from onnxq.types.presets import (
    FOLD_LAYERS,
    RECOGNIZE,
    SETTLE,
    TO_FLOAT32,
    declines_computed_weight,
    declines_constant_operand,
    gemm_weight_axis,
)
from onnxq.types.vendor_step import VendorStep

_WEIGHTS = {
    "uint8": QuantSpec("uint8", symmetric=False),
    "int8": QuantSpec("int8", granularity=PerChannel(0)),
    "int7": QuantSpec("int7", granularity=PerChannel(0)),
}

_RECOGNIZE = tuple(name for name in RECOGNIZE if name != "fuse_matmul_add")
"""QLinearMatMul has no bias: the Add behind a MatMul is an operator of its own."""


def _not_two_dimensional(node: NodeFacts) -> str | None:
    rank = len(node.shape(1) or ())
    return None if rank == 4 else f"QLinearConv kernels are two-dimensional, its weight has rank {rank}"


def _conv(node: NodeFacts) -> str | None:
    return declines_computed_weight(node) or _not_two_dimensional(node)


def _dilated(node: NodeFacts) -> str | None:
    if any(step != 1 for step in node.attrs.get("dilations", ())):
        return "QLinearAveragePool has no dilations"
    return None


def _gemm(node: NodeFacts) -> str | None:
    if node.attrs.get("alpha", 1.0) != 1.0 or node.attrs.get("beta", 1.0) != 1.0 or node.attrs.get("transA", 0):
        return "QGemm is written for plain x * W + b only"
    return declines_computed_weight(node)


def configure(values: Mapping[str, str]) -> Backend:
    rules = [
        OpRule(("Conv",), weight=1, weight_axis=0, bias=2, output=True, decline=_conv),
        OpRule(("Add",), inputs=(0, 1), output=True, decline=declines_constant_operand),
        OpRule(("AveragePool",), output=True, decline=_dilated),
        OpRule(("GlobalAveragePool",), output=True),
        OpRule(("Concat",), inputs=None, output=True, joins=True),
    ]
    if values["gemm"] == "yes":
        rules.append(OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, bias=2, output=True, decline=_gemm))
        rules.append(OpRule(("MatMul",), inputs=(0,), weight=1, output=True))
    return Backend(
        name="onnx_qnn",
        summary="QLinear operators for TVM and onnxruntime: uint8 from operator to operator, biases int32",
        scheme=Scheme(
            activation=QuantSpec("uint8", symmetric=False), weight=_WEIGHTS[values["weights"]], bias=QuantSpec("int32")
        ),
        rules=tuple(rules),
        same_scale=(
            SameScaleRule(("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split")),
            RESIZE,
        ),
        absorb_activations=True,
        limits=Limits(
            dtypes=("uint8", "int8", "int32"), weight_only_dtypes=("int8",), min_opset=13, refused_operators=()
        ),
        passes=(*TO_FLOAT32, *FOLD_LAYERS, *_RECOGNIZE, *SETTLE),
        known_as=(KnownAs("ONNX_QNN", a_observer="MinMaxObserver"),),
        emitters=("qlinear",),
        vendor_steps=(
            VendorStep("TVM compiles it for this machine", "tvmc compile --target llvm --output {name}.tar {model}"),
        ),
        integer_operators=True,
        options=(
            Option(
                "weights",
                tuple(_WEIGHTS),
                "uint8",
                "uint8 with one scale; int8 with one for each channel; int7 for x86 processors without VNNI",
            ),
            Option("gemm", ("no", "yes"), "no", "Gemm and MatMul in integers (QGemm, QLinearMatMul)"),
        ),
        configure=configure,
        checked_by=("onnxruntime",),
    )


BACKENDS.add("onnx_qnn", configure({"weights": "uint8", "gemm": "no"}))
