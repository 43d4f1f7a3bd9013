"""Tengine, uint8: asymmetric, one scale for each tensor; the tool quantizes weights and biases itself.

Every tensor of the network needs a scale: the uint8 mode has no float layers.
"""

from __future__ import annotations

from onnxq.targets import BACKENDS
from onnxq.types import Backend, KnownAs, Limits, OpRule, QuantSpec, Scheme
from onnxq.types.layer_rules import INTEGER_LAYERS, TOTAL_INTEGER_MOVES, TOTAL_INTEGER_TIED
from onnxq.types.presets import STANDARD_PASSES
from onnxq.types.vendor_step import VendorStep

BACKENDS.add(
    "tengine_u8",
    Backend(
        name="tengine_u8",
        summary="Tengine, uint8: asymmetric, per tensor, with the scale table for quant_tool_uint8",
        scheme=Scheme(
            activation=QuantSpec("uint8", symmetric=False),
            weight=QuantSpec("uint8", symmetric=False),
            bias=QuantSpec("int32"),
        ),
        rules=(
            *INTEGER_LAYERS,
            OpRule(("Add", "Mul", "Sub"), inputs=(0, 1), output=True),
            OpRule(("Concat",), inputs=None, output=True),
            OpRule(
                (
                    "AveragePool",
                    "GlobalAveragePool",
                    "BatchNormalization",
                    "PRelu",
                    "LeakyRelu",
                    "Sigmoid",
                    "HardSigmoid",
                    "HardSwish",
                    "Tanh",
                    "Elu",
                    "Softmax",
                    "ReduceMean",
                ),
                output=True,
            ),
            OpRule(TOTAL_INTEGER_TIED, output=True),
        ),
        same_scale=tuple(rule for rule in TOTAL_INTEGER_MOVES if rule.ops != ("Concat",)),
        tied=TOTAL_INTEGER_TIED,
        fixed_ranges={"Softmax": (0.0, 1.0)},
        quantize_inputs=True,
        integers_only=True,
        limits=Limits(dtypes=("uint8", "int32"), weights_per_tensor=True, min_opset=10, steps=((0, 255),)),
        passes=(*STANDARD_PASSES, "hardswish_as_operator"),
        known_as=(KnownAs("Tengine_u8"),),
        emitters=("qdq", "tengine_scales", "tengine_model"),
        vendor_steps=(
            VendorStep("Tengine's converter", "tm_convert_tool -f onnx -m {tengine_model} -o {name}.tmfile"),
            VendorStep(
                "Tengine's tool quantizes what that has written, with the scales",
                "quant_tool_uint8 -m {name}.tmfile -o {name}_u8.tmfile -i ./ -f {tengine_scales}",
            ),
        ),
    ),
)
