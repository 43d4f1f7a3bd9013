"""Networks of torch that are written as ONNX node by node, so that the files do not change with torch's exporter.

A network is made of `ConvBatchNorm` blocks; `GraphWriter` writes them under the names of the torch modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

OPSET = 17
IR_VERSION = 8


class ConvBatchNorm(nn.Module):
    """A convolution, its batch norm, and the activation that follows (or none); `norm=False` has a bias instead."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 3,
        groups: int = 1,
        activation: nn.Module | None = None,
        *,
        stride: int = 1,
        norm: bool = True,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=not norm)
        self.bn = nn.BatchNorm2d(outputs) if norm else None
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        if self.bn is not None:
            x = self.bn(x)
        return x if self.activation is None else self.activation(x)


class GraphWriter:
    """Collects ONNX nodes and initializers under the names of the torch modules they come from."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, values: torch.Tensor | float) -> str:
        array = np.asarray(torch.as_tensor(values).detach().numpy(), dtype=np.float32)
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, name: str, inputs: list[str], output: str | None = None, **attributes: object) -> str:
        output = output or f"{name}.out"
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def block(self, name: str, block: ConvBatchNorm, x: str) -> str:
        conv, bn = block.conv, block.bn
        inputs = [x, self.constant(f"{name}.conv.weight", conv.weight)]
        if conv.bias is not None:
            inputs.append(self.constant(f"{name}.conv.bias", conv.bias))
        strided = {"strides": list(conv.stride)} if conv.stride != (1, 1) else {}
        x = self.node(
            "Conv",
            f"{name}.conv",
            inputs,
            kernel_shape=list(conv.kernel_size),
            pads=[int(conv.padding[0])] * 4,
            group=conv.groups,
            **strided,
        )
        if bn is not None:
            assert bn.running_mean is not None
            assert bn.running_var is not None
            parameters = {
                "weight": bn.weight,
                "bias": bn.bias,
                "running_mean": bn.running_mean,
                "running_var": bn.running_var,
            }
            constants = [self.constant(f"{name}.bn.{key}", values) for key, values in parameters.items()]
            x = self.node("BatchNormalization", f"{name}.bn", [x, *constants], epsilon=bn.eps)
        if isinstance(block.activation, nn.ReLU6):
            limits = [self.constant(f"{name}.clip.min", 0.0), self.constant(f"{name}.clip.max", 6.0)]
            return self.node("Clip", f"{name}.clip", [x, *limits])
        return x if block.activation is None else self.node("Relu", f"{name}.relu", [x])

    def classifier(self, name: str, linear: nn.Linear, x: str) -> str:
        """Global pooling and a fully connected layer, whose output is "logits"."""
        x = self.node("GlobalAveragePool", "global_pool", [x])
        x = self.node("Flatten", "flatten", [x], axis=1)
        weight = self.constant(f"{name}.weight", linear.weight)
        bias = self.constant(f"{name}.bias", linear.bias)
        return self.node("Gemm", name, [x, weight, bias], output="logits", transB=1)

    def model(
        self,
        name: str,
        image: Sequence[int],
        classes: int,
        *,
        producer: str,
        metadata: Mapping[str, str] | None = None,
    ) -> onnx.ModelProto:
        """A checked model from "image" [batch, *image] to "logits" [batch, classes]."""
        metadata = metadata or {}
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *image])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])],
            self.initializers,
            doc_string=metadata.get("description", ""),
        )
        opsets = [helper.make_opsetid("", OPSET)]
        result = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name=producer)
        if metadata:
            helper.set_model_props(result, dict(metadata))
        onnx.checker.check_model(result, full_check=True)
        return result
