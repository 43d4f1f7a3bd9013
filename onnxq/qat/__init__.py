"""Quantization-aware training of ONNX files: prepare, train with torch, convert, emit."""

from onnxq.config.training import TrainSettings
from onnxq.qat.agreement import Agreement, agreement
from onnxq.qat.convert import Converted, convert
from onnxq.qat.deliver import deliver
from onnxq.qat.evaluate import Evaluation
from onnxq.qat.flow import QatResult, qat
from onnxq.qat.history import Training
from onnxq.qat.loop import train
from onnxq.qat.net import QatNet
from onnxq.qat.prepare import prepare
from onnxq.qat.training_data import open_training_data

__all__ = [
    "Agreement",
    "Converted",
    "Evaluation",
    "QatNet",
    "QatResult",
    "TrainSettings",
    "Training",
    "agreement",
    "convert",
    "deliver",
    "open_training_data",
    "prepare",
    "qat",
    "train",
]
