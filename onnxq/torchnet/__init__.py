"""ONNX graphs as torch modules and back: the only packages that import torch are this one, qat and reconstruct."""

from onnxq.torchnet.call import Body, Call, Mode
from onnxq.torchnet.net import TorchNet, to_torch
from onnxq.torchnet.program import Quantizer
from onnxq.torchnet.registry import OPERATORS, Kernel, op

__all__ = ["OPERATORS", "Body", "Call", "Kernel", "Mode", "Quantizer", "TorchNet", "op", "to_torch"]
