"""Quantize strategies of Vitis AI's quantizer for TensorFlow 2, read as they are and turned into settings of onnxq."""

from onnxq.targets.amd.dialect.builtin import STRATEGIES, Strategy
from onnxq.targets.amd.dialect.strategy import translate

__all__ = ["STRATEGIES", "Strategy", "translate"]
