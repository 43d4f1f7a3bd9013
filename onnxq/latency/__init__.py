"""Nodes that run faster in float than in integers, found by timing files in onnxruntime (`optimize_for`)."""

from onnxq.latency.tune import refuse_untimed, tuned

__all__ = ["refuse_untimed", "tuned"]
