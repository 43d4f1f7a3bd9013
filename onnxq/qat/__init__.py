"""Quantization-aware training of ONNX files: prepare, train with torch, convert, emit."""

from onnxq.qat.agreement import Agreement, agreement
from onnxq.qat.convert import Converted, convert
from onnxq.qat.deliver import deliver
from onnxq.qat.net import QatNet
from onnxq.qat.prepare import prepare

__all__ = ["Agreement", "Converted", "QatNet", "agreement", "convert", "deliver", "prepare"]
