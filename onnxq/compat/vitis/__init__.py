"""Quantize strategies of Vitis AI's quantizer for TensorFlow 2, read as they are and turned into settings of onnxq."""

from onnxq.compat.vitis.builtin import STRATEGIES, Strategy
from onnxq.compat.vitis.strategy import translate

__all__ = ["STRATEGIES", "Strategy", "translate"]
