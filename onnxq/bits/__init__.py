"""Which layers can have how many bits: sensitivity, mixed precision under a budget, layers put back."""

from onnxq.bits.found import Found, Point
from onnxq.bits.hold import Held, hold
from onnxq.bits.search import search
from onnxq.bits.sensitivity import Effect, Sensitivity, sensitivity
from onnxq.bits.study import Subject

__all__ = ["Effect", "Found", "Held", "Point", "Sensitivity", "Subject", "hold", "search", "sensitivity"]
