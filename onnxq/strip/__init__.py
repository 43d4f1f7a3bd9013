"""Quantization taken out of a model: float operators and the real numbers of the stored integers in its place."""

from onnxq.strip.operators import is_dynamic, is_quantized
from onnxq.strip.strip import Left, Stripped, quantized_operators, strip

__all__ = ["Left", "Stripped", "is_dynamic", "is_quantized", "quantized_operators", "strip"]
