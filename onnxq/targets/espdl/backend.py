"""ESP-DL on Espressif chips: int8, symmetric, every scale a power of two, rounded up.

The ESP32-P4 rounds halves to even and has one scale for each output channel; the ESP32-S3 and the portable C code round
halves up and have one for each tensor. The S3 holds biases in 20 bits.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.targets import BACKENDS
from onnxq.types import Backend, Limits, OpRule, Option, PerChannel, QuantSpec, SameScaleRule, Scheme
from onnxq.types.layer_rules import INTEGER_CONVOLUTIONS, RESIZE
from onnxq.types.presets import FOLD_LAYERS, RECOGNIZE, SETTLE, TO_FLOAT32, gemm_weight_axis
from onnxq.types.spec import Rounding
from onnxq.types.vendor_step import VendorStep

S3_BIAS = 2**19
"""Biases of the ESP32-S3 lie in [-2^19, 2^19)."""


_WITH_ESP_PPQ = """\
import json, torch
from esp_ppq.api.espdl_interface import espdl_quantize_onnx
from esp_ppq.IR import QuantableOperation
from esp_ppq.parser.espdl_exporter import EspdlExporter

graph = espdl_quantize_onnx(onnx_import_file="{deploy}", espdl_export_file="{name}.espdl", calib_dataloader=samples,
                            calib_steps=len(samples), input_shape=list(samples[0].shape), target="CHIP",
                            collate_fn=lambda sample: sample, skip_export=True)
table = json.load(open("{espdl_exponents}"))["tensors"]
for operation in graph.operations.values():
    if isinstance(operation, QuantableOperation):
        for config, variable in operation.config_with_variable:
            root = config.dominated_by
            if root.scale is not None and variable.name in table:
                exponents = torch.tensor(table[variable.name]["exponent"], dtype=torch.float32)
                root.scale = torch.pow(2.0, exponents).reshape(root.scale.shape)
EspdlExporter().export("{name}.espdl", graph)"""
"""The program of `tools/readers/esp_ppq`, which the tests of readers run, without its comparison."""


def configure(values: Mapping[str, str]) -> Backend:
    chip = values["chip"]
    per_channel = chip == "esp32p4"
    rounding: Rounding = "half_even" if per_channel else "half_up"
    activation = QuantSpec("int8", power_of_two=True, rounding=rounding)
    bias = QuantSpec("int32", power_of_two=True, rounding=rounding)
    return Backend(
        name="espdl",
        summary="ESP-DL on Espressif chips: int8 with power-of-two scales, with a table of exponents",
        scheme=Scheme(
            activation=activation,
            weight=activation.replace(granularity=PerChannel(0)) if per_channel else activation,
            bias=bias.replace(quant_min=-S3_BIAS, quant_max=S3_BIAS - 1) if chip == "esp32s3" else bias,
        ),
        rules=(
            *INTEGER_CONVOLUTIONS,
            OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, bias=2, output=True),
            OpRule(("MatMul",), weight=1, output=True),
            OpRule(("Add", "Sub", "Mul", "Div"), inputs=(0, 1), output=True),
            OpRule(("AveragePool", "GlobalAveragePool", "ReduceMean"), output=True),
            OpRule(
                ("Sigmoid", "Tanh", "LeakyRelu", "PRelu", "Elu", "HardSigmoid", "HardSwish", "Gelu"),
                output=True,
            ),
            OpRule(("Softmax",)),
        ),
        same_scale=(
            SameScaleRule(("MaxPool", "GlobalMaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze")),
            SameScaleRule(("Slice", "Split", "Gather", "DepthToSpace", "SpaceToDepth")),
            RESIZE,
            SameScaleRule(("Concat",), inputs=None),
        ),
        quantize_inputs=True,
        rounding_in_files="half_even",
        limits=Limits(
            dtypes=("int8", "int32"),
            zero_point_zero=True,
            power_of_two=True,
            weights_per_tensor=not per_channel,
            min_opset=13,
            steps=((-128, 127),),
            roundings=(rounding,),
        ),
        passes=(*TO_FLOAT32, *FOLD_LAYERS, *RECOGNIZE, "hardswish_as_operator", *SETTLE),
        emitters=("qdq", "deploy", "espdl_exponents"),
        vendor_steps=(
            VendorStep(
                "esp-ppq writes the .espdl file with these exponents; samples is a list of torch tensors for the input",
                _WITH_ESP_PPQ.replace("CHIP", chip),
            ),
        ),
        options=(
            Option(
                "chip",
                ("esp32p4", "esp32s3", "c"),
                "esp32p4",
                "which kernels run it: rounding, scales per channel or tensor, bits of a bias; c is portable C code",
            ),
        ),
        configure=configure,
        checked_by=("esp-ppq",),
    )


BACKENDS.add("espdl", configure({"chip": "esp32p4"}))
