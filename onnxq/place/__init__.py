"""Graph + backend -> QuantPlan."""

from onnxq.place.placer import place

__all__ = ["place"]
