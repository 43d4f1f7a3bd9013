"""MobileNetV2, the real one and one in small: inverted residual blocks with depthwise convolutions and ReLU6.

After folding, batch norms leave channels with ranges of very different size, which is what makes one scale per weight
costly (Data-Free Quantization, Nagel et al. 2019). The real weights have that in full; a network that was trained for
minutes hardly has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import onnx
import torch
from torch import nn
from torch.nn import functional

from tools.bench.torch_networks import PRODUCER
from tools.written_networks import ConvBatchNorm, GraphWriter


class Shape(NamedTuple):
    """Of an inverted residual block."""

    inputs: int
    outputs: int
    stride: int
    expansion: int


SMALL = (Shape(16, 24, 2, 4), Shape(24, 24, 1, 4), Shape(24, 32, 2, 4), Shape(32, 32, 1, 4), Shape(32, 48, 1, 4))
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Of the real one, as in the paper: expansion, channels, blocks, stride of the first block."""


class InvertedResidual(nn.Module):
    """1x1 up, 3x3 depthwise, 1x1 down without activation; the input is added where the shape stays."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        inner = shape.expansion * shape.inputs
        self.expand = ConvBatchNorm(shape.inputs, inner, 1, activation=nn.ReLU6()) if shape.expansion > 1 else None
        self.depthwise = ConvBatchNorm(inner, inner, groups=inner, activation=nn.ReLU6(), stride=shape.stride)
        self.project = ConvBatchNorm(inner, shape.outputs, 1)
        self.adds = shape.stride == 1 and shape.inputs == shape.outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x if self.expand is None else self.expand(x)
        y = self.project(self.depthwise(y))
        return x + y if self.adds else y

    def write(self, to: GraphWriter, name: str, x: str) -> str:
        y = x if self.expand is None else to.block(f"{name}.expand", self.expand, x)
        y = to.block(f"{name}.depthwise", self.depthwise, y)
        y = to.block(f"{name}.project", self.project, y)
        return to.node("Add", f"{name}.add", [x, y]) if self.adds else y


class MobileNetV2(nn.Module):
    """Modules are in the order of torchvision's, so that its weights can be taken over one after the other."""

    def __init__(self, channels: int, blocks: Sequence[Shape], head: int, classes: int = 10) -> None:
        super().__init__()
        self.channels = channels
        self.stem = ConvBatchNorm(channels, blocks[0].inputs, activation=nn.ReLU6(), stride=2)
        self.blocks = nn.ModuleList(InvertedResidual(block) for block in blocks)
        self.head = ConvBatchNorm(blocks[-1].outputs, head, 1, activation=nn.ReLU6())
        self.classifier = nn.Linear(head, classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """What the classifier sees."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return functional.adaptive_avg_pool2d(self.head(x), 1).flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x))

    def to_onnx(self, size: int = 28) -> onnx.ModelProto:
        write = GraphWriter()
        x = write.block("stem", self.stem, "image")
        for number, block in enumerate(self.blocks):
            assert isinstance(block, InvertedResidual)
            x = block.write(write, f"blocks.{number}", x)
        x = write.block("head", self.head, x)
        write.classifier("classifier", self.classifier, x)
        image = (self.channels, size, size)
        return write.model("mobilenetv2", image, self.classifier.out_features, producer=PRODUCER)


def small() -> MobileNetV2:
    """For grey images of 28x28 pixels."""
    return MobileNetV2(1, SMALL, head=96)


def real(classes: int) -> MobileNetV2:
    blocks: list[Shape] = []
    inputs = 32
    for expansion, outputs, count, stride in STAGES:
        for number in range(count):
            blocks.append(Shape(inputs, outputs, 1 if number else stride, expansion))
            inputs = outputs
    return MobileNetV2(3, blocks, head=1280, classes=classes)
