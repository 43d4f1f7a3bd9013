"""The whole flow: a model made ready, calibrated, improved, written and checked."""

from onnxq.pipeline.run import Calibrated, quantize

__all__ = ["Calibrated", "quantize"]
