"""Which layers can have how many bits: sensitivity, mixed precision under a budget, layers restored."""

from onnxq.mixed_precision.found import Found, Point
from onnxq.mixed_precision.restore_layers import Held, restore_layers
from onnxq.mixed_precision.search import search
from onnxq.mixed_precision.sensitivity import Effect, Sensitivity, sensitivity
from onnxq.mixed_precision.subject import Subject
from onnxq.moved import renamed_in

__all__ = ["Effect", "Found", "Held", "Point", "Sensitivity", "Subject", "restore_layers", "search", "sensitivity"]

__getattr__ = renamed_in(__name__, {"hold": "restore_layers"})
