"""What a target does not take of a file: its limits, and rules of its own."""

from onnxq.lint.finding import Finding
from onnxq.lint.limits import lint
from onnxq.lint.quantizers import Quantizer
from onnxq.lint.rules import LINTS, LintRule

__all__ = ["LINTS", "Finding", "LintRule", "Quantizer", "lint"]
