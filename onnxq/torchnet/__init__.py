"""ONNX graphs as torch modules and back: torch is imported here, in qat and in ranks alone."""

from onnxq.torchnet.call import Body, Call, Mode
from onnxq.torchnet.net import TorchNet, to_torch
from onnxq.torchnet.program import Quantizer
from onnxq.torchnet.registry import OPERATORS, Kernel, op

__all__ = ["OPERATORS", "Body", "Call", "Kernel", "Mode", "Quantizer", "TorchNet", "op", "to_torch"]
