"""Did it work: the checks of an emitted model, its target's lint, and the comparison with the float model."""

from onnxq.lint import Finding
from onnxq.lint.limits import lint
from onnxq.verify.check_samples import CheckSamples
from onnxq.verify.checks import FULL_OPTIMIZATION_NODES, compare_outputs, verify
from onnxq.verify.compare import LayerError, compare_layers
from onnxq.verify.comparison import below_limit
from onnxq.verify.float_side import FloatSide
from onnxq.verify.kernels import KernelCount, integer_kernels, sums_are_exact
from onnxq.verify.report import (
    ChecksFailed,
    Decisions,
    Failure,
    FailureKind,
    OutputCheck,
    ResultCheck,
    SampleFigures,
    VerifyReport,
)

__all__ = [
    "FULL_OPTIMIZATION_NODES",
    "CheckSamples",
    "ChecksFailed",
    "Decisions",
    "Failure",
    "FailureKind",
    "Finding",
    "FloatSide",
    "KernelCount",
    "LayerError",
    "OutputCheck",
    "ResultCheck",
    "SampleFigures",
    "VerifyReport",
    "below_limit",
    "compare_layers",
    "compare_outputs",
    "integer_kernels",
    "lint",
    "sums_are_exact",
    "verify",
]
