"""The operator ai.onnx.ml::Scaler for training: (x - offset) * scale."""

import torch

from onnxq.torchnet import Call, Kernel, op


@op("Scaler", domain="ai.onnx.ml")
def scaler(call: Call) -> Kernel:
    """Called once for each node; what it returns runs at every step, and torch knows its gradient."""
    offset = torch.tensor(call.attribute("offset"))
    scale = torch.tensor(call.attribute("scale"))
    if len(offset) != 1 or len(scale) != 1:
        raise call.unsupported("only one offset and one scale for all values are written here")
    return lambda x: (x - offset) * scale
