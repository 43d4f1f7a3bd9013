"""Rockchip RKNN (rknn-toolkit2): int8 QDQ model, data asymmetric per tensor, weights symmetric per channel.

The toolkit reads the scales of a QDQ model (`build(do_quantization=False)`) and makes integers of biases itself: one
that is quantized in the file ends its build with an error. The file for hybrid quantization is for those who let it
quantize the float model instead.
"""

from __future__ import annotations

from onnxq.targets import BACKENDS
from onnxq.types import Backend, Limits, NodeFacts, OpRule, PerChannel, QuantSpec, SameScaleRule, Scheme
from onnxq.types.layer_rules import INTEGER_LAYERS, RESIZE
from onnxq.types.presets import STANDARD_PASSES
from onnxq.types.vendor_step import VendorStep


def _toolkit_refuses(node: NodeFacts) -> str | None:
    return "rknn-toolkit2 does not build a MatMul with quantized weights"


BACKENDS.add(
    "rknn",
    Backend(
        name="rknn",
        summary="Rockchip NPUs through rknn-toolkit2: QDQ model, int8, data asymmetric, weights per channel",
        scheme=Scheme(
            activation=QuantSpec("int8", symmetric=False),
            weight=QuantSpec("int8", granularity=PerChannel(0)),
        ),
        rules=(
            *(rule for rule in INTEGER_LAYERS if rule.ops != ("MatMul",)),
            OpRule(("MatMul",), decline=_toolkit_refuses),
            OpRule(("Add", "Sub", "Mul"), inputs=(0, 1), output=True),
            OpRule(("AveragePool", "GlobalAveragePool", "ReduceMean"), output=True),
            OpRule(("Sigmoid", "Tanh", "LeakyRelu", "PRelu", "Elu", "HardSigmoid", "HardSwish"), output=True),
        ),
        same_scale=(
            SameScaleRule(("MaxPool", "GlobalMaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze")),
            SameScaleRule(("Slice", "Split", "DepthToSpace", "SpaceToDepth")),
            RESIZE,
            SameScaleRule(("Concat",), inputs=None),
        ),
        quantize_inputs=True,
        limits=Limits(
            dtypes=("int8",),
            min_opset=13,
            max_opset=19,
            bias_quantized=False,
            steps=((-128, 127),),
            weights_symmetric=True,
        ),
        passes=(*STANDARD_PASSES, "hardswish_as_operator"),
        emitters=("qdq", "deploy", "rknn_hybrid"),
        vendor_steps=(
            VendorStep(
                "rknn-toolkit2 builds the Q/DQ model as it is; put the name of the chip",
                "from rknn.api import RKNN\n"
                "rknn = RKNN()\n"
                'rknn.config(target_platform="rk3588", optimization_level=2)\n'
                'rknn.load_onnx(model="{model}")\n'
                "rknn.build(do_quantization=False)\n"
                'rknn.export_rknn("{name}.rknn")',
            ),
        ),
        checked_by=("rknn-toolkit2",),
    ),
)
