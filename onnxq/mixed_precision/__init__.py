"""Which layers can have how many bits: sensitivity, mixed precision under a budget, layers put back."""

import warnings

from onnxq.mixed_precision.found import Found, Point
from onnxq.mixed_precision.restore_layers import Held, restore_layers
from onnxq.mixed_precision.search import search
from onnxq.mixed_precision.sensitivity import Effect, Sensitivity, sensitivity
from onnxq.mixed_precision.study import Subject

__all__ = ["Effect", "Found", "Held", "Point", "Sensitivity", "Subject", "restore_layers", "search", "sensitivity"]


def __getattr__(name: str) -> object:
    if name == "hold":
        warnings.warn("onnxq.mixed_precision.hold is now called restore_layers", DeprecationWarning, stacklevel=2)
        return restore_layers
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
