"""HiSilicon NNIE (Hi3559A, Hi3519A, Hi3516C ...): the logarithmic 8-bit format, one clip value for each tensor.

The chip quantizes what enters a layer, so quantizers stand on the inputs of the operators that it computes, and results
that leave the network stay float. An Add takes the product of a Mul as it is: both are one layer. ONNX has no type for
the grid: the model written is therefore the simulated one, and the mapper gets a float model and a table of clip
values.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.observers.aliases import ALIASES, Alias
from onnxq.targets import BACKENDS
from onnxq.types import Backend, KnownAs, Limits, NodeFacts, OpRule, Option, QuantSpec, Scheme
from onnxq.types.presets import FOLD_LAYERS, SETTLE, TO_FLOAT32, declines_computed_weight
from onnxq.types.vendor_step import VendorStep


def _not_doubling(node: NodeFacts) -> str | None:
    mode = node.attrs.get("mode", "nearest")
    if mode != "nearest":
        return f"mode '{mode}': NNIE enlarges by repeating pixels only"
    before, after = node.shape(0), node.output_shape()
    if before is None or after is None or len(before) != len(after):
        return None
    doubled = [(a, b) for a, b in zip(before[2:], after[2:], strict=True) if a is not None and b is not None]
    return None if all(b == 2 * a for a, b in doubled) else "NNIE enlarges by a factor of 2 only"


OPTIONS = (
    Option(
        "pooling",
        ("strict", "any"),
        "strict",
        "any: write files also where the chip rounds sizes to other shapes than the model has, for those who change it "
        "afterwards",
    ),
)


def configure(values: Mapping[str, str]) -> Backend:
    """The backend with or without the rule about sizes of pooling."""
    return Backend(
        name="nnie",
        summary="HiSilicon NNIE: simulated model, clip values (gfpq) and float model for the mapper, logarithmic 8 bit",
        scheme=Scheme(activation=QuantSpec("nnie8"), weight=QuantSpec("nnie8")),
        rules=(
            OpRule(("Conv", "ConvTranspose"), weight=1, decline=declines_computed_weight),
            OpRule(("Gemm", "MatMul"), weight=1),
            OpRule(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")),
            OpRule(("BatchNormalization", "PRelu")),
            OpRule(("Resize", "Upsample"), decline=_not_doubling),
            OpRule(("Add", "Mul"), inputs=(0, 1)),
        ),
        unquantized_pairs=(("Add", "Mul"),),
        limits=Limits(
            dtypes=("nnie8",),
            zero_point_zero=True,
            weights_per_tensor=True,
            bias_quantized=False,
            min_opset=9,
        ),
        passes=(*TO_FLOAT32, *FOLD_LAYERS, "fuse_matmul_add", *SETTLE),
        known_as=(KnownAs("NNIE", fakequantize="NNIEFakeQuantize", formats="fixed"),),
        emitters=("simulate", "gfpq", "nnie_deploy"),
        vendor_steps=(
            VendorStep(
                "HiSilicon's mapper compiles the float model (through Caffe or its ONNX front end); the configuration "
                "gives each layer its clip values",
                "nnie_mapper_12 {name}.cfg  # for {nnie_deploy}, with the values of {gfpq}",
            ),
        ),
        activation_fake_quantizer="nnie",
        weight_fake_quantizer="nnie",
        lints=("nnie", "nnie_pooling") if values["pooling"] == "strict" else ("nnie",),
        options=OPTIONS,
        configure=configure,
    )


BACKENDS.add("nnie", configure({option.name: option.default for option in OPTIONS}))
ALIASES.add("nnie_max", Alias("absmax"))  # its grid of 2^(k/16) is the number format's business
