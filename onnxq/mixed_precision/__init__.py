"""Which layers can have how many bits: sensitivity, mixed precision under a budget, layers put back."""

from onnxq.mixed_precision.found import Found, Point
from onnxq.mixed_precision.restore_layers import Held, hold
from onnxq.mixed_precision.search import search
from onnxq.mixed_precision.sensitivity import Effect, Sensitivity, sensitivity
from onnxq.mixed_precision.study import Subject

__all__ = ["Effect", "Found", "Held", "Point", "Sensitivity", "Subject", "hold", "search", "sensitivity"]
