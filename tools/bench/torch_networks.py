"""Hand-written torch networks that training is measured on, each with its ONNX file."""

from __future__ import annotations

import onnx
import torch
from torch import nn
from torch.nn import functional

from tools.written_networks import ConvBatchNorm, GraphWriter

PRODUCER = "onnxq bench"


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, norm: bool) -> None:
        super().__init__()
        self.first = ConvBatchNorm(inputs, outputs, activation=nn.ReLU(), stride=stride, norm=norm)
        self.second = ConvBatchNorm(outputs, outputs, norm=norm)
        changes = stride != 1 or inputs != outputs
        self.shortcut = ConvBatchNorm(inputs, outputs, 1, stride=stride, norm=norm) if changes else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.shortcut is None else self.shortcut(x)
        return functional.relu(self.second(self.first(x)) + shortcut)

    def write(self, to: GraphWriter, name: str, x: str) -> str:
        y = to.block(f"{name}.second", self.second, to.block(f"{name}.first", self.first, x))
        shortcut = x if self.shortcut is None else to.block(f"{name}.shortcut", self.shortcut, x)
        return to.node("Relu", f"{name}.relu", [to.node("Add", f"{name}.add", [y, shortcut])])


class ResNet18(nn.Module):
    """ResNet-18, with batch norms or, as after folding, with biases; `width` is that of the first blocks."""

    def __init__(self, *, norm: bool = True, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = ConvBatchNorm(3, width, 7, activation=nn.ReLU(), stride=2, norm=norm)
        blocks: dict[str, ResidualBlock] = {}
        inputs = width
        for stage in range(4):
            outputs = width * 2**stage
            for number in range(2):
                stride = 2 if stage and not number else 1
                blocks[f"stage{stage + 1}_{number + 1}"] = ResidualBlock(inputs, outputs, stride, norm=norm)
                inputs = outputs
        self.blocks = nn.ModuleDict(blocks)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(self.stem(x), 3, 2, 1)
        for block in self.blocks.values():
            x = block(x)
        return self.classifier(functional.adaptive_avg_pool2d(x, 1).flatten(1))

    def to_onnx(self, size: int) -> onnx.ModelProto:
        write = GraphWriter()
        x = write.block("stem", self.stem, "image")
        x = write.node("MaxPool", "pool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        for name, block in self.blocks.items():
            assert isinstance(block, ResidualBlock)
            x = block.write(write, f"blocks.{name}", x)
        write.classifier("classifier", self.classifier, x)
        return write.model("resnet18", (3, size, size), self.classifier.out_features, producer=PRODUCER)


class SmallNet(nn.Module):
    """A classifier of 28x28 images: what the digits of the demo have, on a quarter of the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBatchNorm(1, 16, activation=nn.ReLU(), stride=2)
        self.residual = ResidualBlock(16, 16, 1, norm=True)
        self.depthwise = ConvBatchNorm(16, 16, groups=16, activation=nn.ReLU6(), stride=2)
        self.pointwise = ConvBatchNorm(16, 32, 1, activation=nn.ReLU())
        self.head = ConvBatchNorm(32, 32, activation=nn.ReLU())
        self.classifier = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.depthwise(self.residual(self.stem(x)))
        x = self.head(self.pointwise(x))
        return self.classifier(functional.adaptive_avg_pool2d(x, 1).flatten(1))

    def to_onnx(self) -> onnx.ModelProto:
        write = GraphWriter()
        x = self.residual.write(write, "residual", write.block("stem", self.stem, "image"))
        for name in ("depthwise", "pointwise", "head"):
            x = write.block(name, getattr(self, name), x)
        write.classifier("classifier", self.classifier, x)
        return write.model("images", (1, 28, 28), self.classifier.out_features, producer=PRODUCER)
