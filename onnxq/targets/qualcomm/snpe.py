"""Qualcomm SNPE: asymmetric 8 bits with one scale for every tensor, given to SNPE as encodings beside the float model.

SNPE quantizes the inputs and the results of all operators and represents zero exactly; its converter takes the ranges
from a file (`--quantization_overrides`) under the tensor names of the float model. Weights are listed too, so that SNPE
does not choose ranges of its own for them. The QDQ model has the same parameters: it is what the accuracy is
checked on, with biases in 32 bits as `snpe-dlc-quantize --bias_bitwidth 32` makes them.
Operators and encodings are those of `qnn`, which is for chips of the same vendor.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.targets import BACKENDS
from onnxq.targets.qualcomm.qnn import ENCODINGS, PER_COLUMN, RULES, SAME_SCALE, encodings_emitters
from onnxq.targets.qualcomm.sdk_steps import QAIRT, SNPE
from onnxq.types import Backend, KnownAs, Limits, QuantSpec, Scheme
from onnxq.types.presets import FOLD_LAYERS, RECOGNIZE, SETTLE, TO_FLOAT32


def snpe(values: Mapping[str, str]) -> Backend:
    """The backend for one choice of options."""
    return Backend(
        name="snpe",
        summary="Qualcomm SNPE: float model and encodings files, everything asymmetric uint8 per tensor",
        scheme=Scheme(
            activation=QuantSpec("uint8", symmetric=False),
            weight=QuantSpec("uint8", symmetric=False),
            bias=QuantSpec("int32"),
        ),
        rules=RULES,
        same_scale=SAME_SCALE,
        quantize_inputs=True,
        fixed_ranges={"Sigmoid": (0.0, 1.0), "Softmax": (0.0, 1.0)},
        limits=Limits(
            dtypes=("uint8", "int8", "uint16", "int16", "int4", "int32"),
            weight_only_dtypes=("int4",),
            min_opset=13,
            minimum_range=0.01,
        ),
        outlier_format="uint16",
        outlier_matrices=PER_COLUMN,
        refinements=("minimum_range",),
        passes=(*TO_FLOAT32, *FOLD_LAYERS, "batchnorm_to_conv", *RECOGNIZE, "hardswish_as_operator", *SETTLE),
        known_as=(KnownAs("SNPE"),),
        emitters=("qdq", "deploy", "snpe_clip_ranges", *encodings_emitters(values["encodings"])),
        vendor_steps=(*SNPE, *QAIRT),
        options=(ENCODINGS,),
        configure=snpe,
        checked_by=("aimet-onnx",),
    )


BACKENDS.add("snpe", snpe({"encodings": ENCODINGS.default}))
