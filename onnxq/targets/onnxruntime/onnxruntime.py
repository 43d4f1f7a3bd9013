"""onnxruntime on CPUs: QDQ that its optimizer turns into integer kernels (QLinearConv, QGemm, MatMulIntegerToFloat).

Activations are asymmetric uint8: onnxruntime drops a Relu or Clip only when the quantizer behind it saturates at the
same values, and a signed symmetric format keeps a third of the convolutions in float. Weights are int8 per channel,
biases int32. Conv needs a quantizer on its output to become an integer kernel; MatMul and Gemm also exist with float
results, so their outputs stay float unless the next node wants integers. What an Add behind a MatMul of more than two
axes adds stays float: no kernel takes it as integers, and onnxruntime would dequantize it in every run. Element-wise
operators are quantized where integers arrive and integers are wanted (residual blocks, squeeze-and-excitation), never
around a LayerNorm or Softmax: that costs accuracy and saves nothing. Tables of embeddings are int8 with a scale for
each column: in most language models they are most of the file, and looking integers up costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.errors import ConfigError
from onnxq.targets import BACKENDS
from onnxq.targets.half_rest import half_rest, rest_option
from onnxq.targets.onnxruntime.dynamic import with_dynamic_activations
from onnxq.types import Backend, Limits, NodeFacts, OpRule, Option, PerChannel, QuantSpec, Scheme
from onnxq.types.layer_rules import MOVES
from onnxq.types.presets import (
    ONNXRUNTIME_PASSES,
    WHOLE_IN_ONNXRUNTIME,
    declines_computed_weight,
    declines_other_gathers,
    gemm_weight_axis,
    matmul_weight_axis,
)
from onnxq.types.vendor_step import VendorStep

NARROWEST_TABLE = 16


def _declines_table(node: NodeFacts) -> str | None:
    """Only tables of embeddings: coordinates of boxes and the like are looked up too, and have to be exact."""
    reason = declines_other_gathers(node)
    if reason is not None:
        return reason
    width = (node.shape(0) or (0, 0))[1] or 0
    return f"its rows have {width} numbers, too few for embeddings" if width < NARROWEST_TABLE else None


def _is_gemm(node: NodeFacts) -> bool:
    """Whether onnxruntime makes a Gemm of a MatMul and the Add behind it, which is in integers only with its bias.

    It does for matrices, and for known lengths with more axes, which it then reshapes.
    """
    shape = node.shape(0)
    return shape is not None and (len(shape) == 2 or all(isinstance(length, int) for length in shape))


OPTIONS = (
    Option(
        "activations",
        ("static", "dynamic"),
        "static",
        "dynamic: ranges of activations are found in each run, no data is needed",
    ),
    Option(
        "small",
        ("float", "integers"),
        "float",
        "layers that dynamic quantization makes slower; integers: for the size of the file",
    ),
    rest_option("fp16"),
)


def configure(values: Mapping[str, str]) -> Backend:
    static = Backend(
        name="onnxruntime",
        vendor_steps=(
            VendorStep(
                "onnxruntime runs it as any other model",
                'session = onnxruntime.InferenceSession("{model}", providers=["CPUExecutionProvider"])',
            ),
        ),
        summary="onnxruntime CPU: QDQ model placed for integer kernels, activations uint8, weights int8 per channel",
        scheme=Scheme(
            activation=QuantSpec("uint8", symmetric=False),
            weight=QuantSpec("int8", granularity=PerChannel(0)),
            bias=QuantSpec("int32"),
        ),
        rules=(
            OpRule(("Conv",), weight=1, weight_axis=0, bias=2, output=True, decline=declines_computed_weight),
            OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, bias=2),
            OpRule(("MatMul",), inputs=(0,), weight=1, weight_axis=matmul_weight_axis, added_bias=_is_gemm),
            OpRule(("Gather",), inputs=(), weight=0, weight_axis=1, decline=_declines_table),
            OpRule(("Add", "Mul"), inputs=(0, 1), output=True, joins=True),
            OpRule(("AveragePool", "GlobalAveragePool", "Sigmoid", "LeakyRelu"), output=True, joins=True),
            OpRule(("Concat",), inputs=None, output=True, joins=True),
        ),
        same_scale=MOVES,
        absorb_activations=True,
        runs_in_onnxruntime=True,
        limits=Limits(
            dtypes=("int8", "uint8", "int16", "uint16", "int4", "uint4", "int32", "float8e4m3fn", "float8e5m2"),
            min_opset=10,
            float_types=("float32",),
            weight_only_dtypes=("int4",),
            refused_operators=(),
        ),
        outlier_format="float",
        whole_operators=WHOLE_IN_ONNXRUNTIME,
        passes=(*ONNXRUNTIME_PASSES, "prelu_as_max"),
        checked_by=("onnxruntime",),
        options=OPTIONS,
        configure=configure,
        rest=half_rest(values["rest"]),
    )
    small = values["small"] == "integers"
    if values["activations"] == "static":
        if small:
            raise ConfigError("onnxruntime:small=integers is for activations=dynamic: leave it out")
        return static
    if static.rest is not None:
        raise ConfigError("onnxruntime:activations=dynamic computes its rest in float32: leave rest=fp16 out")
    return with_dynamic_activations(static, small=small)


BACKENDS.add("onnxruntime", configure({option.name: option.default for option in OPTIONS}))
