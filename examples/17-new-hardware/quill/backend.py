"""The chip as a target: formats, where quantizers stand, limits, and the names of what the other files register."""

from onnxq.targets import BACKENDS
from onnxq.types import Backend, Limits, OpRule, PerChannel, QuantSpec, SameScaleRule, Scheme
from onnxq.types.presets import STANDARD_PASSES, gemm_weight_axis

from . import averages, knee, line_buffer, program, register_lsq, scale_register, slope6, table  # noqa: F401


def declines(node):
    """Why a convolution stays float; None where the chip runs it."""
    dilations = node.attrs.get("dilations", (1, 1))
    return "Quill has no dilated convolutions" if any(step != 1 for step in dilations) else None


BACKENDS.add(
    "quill",
    Backend(
        name="quill",
        summary="an invented chip: 6 bits on two slopes, scales of 1/4096",
        scheme=Scheme(QuantSpec("slope6"), QuantSpec("slope6", granularity=PerChannel(0))),
        rules=(
            OpRule(("Conv",), weight=1, weight_axis=0, decline=declines),
            OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis),
            OpRule(("Add",), inputs=(0, 1)),
            OpRule(("GlobalAveragePool",)),
        ),
        same_scale=(SameScaleRule(("MaxPool", "Flatten")),),
        limits=Limits(dtypes=("slope6",), zero_point_zero=True, bias_quantized=False),
        passes=STANDARD_PASSES,
        activation_observer="knee",
        weight_observer="knee:share=0.8",
        activation_fake_quantizer="register_lsq",
        weight_fake_quantizer="register_lsq",
        refinements=("quill_scale_register",),
        simulations=("quill_averages",),
        lints=("quill_line_buffer",),
        emitters=("qdq", "quill_table", "quill_program"),
    ),
)
