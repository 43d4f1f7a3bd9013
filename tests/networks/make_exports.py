"""Writes the four networks of this folder with PyTorch's two exporters; needs torch, and onnxscript for the newer one.

    python tests/networks/make_exports.py

A ResNet with batch normalization and a small transformer, each once through TorchScript and once through torch.export
("dynamo"). The names of their modules are those that the documents of MQBench and Sophgo print.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import onnx
import torch
from torch import nn

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.networks.exported import MASK, TOKENS, samples  # noqa: E402

VOCABULARY, LENGTH, WIDTH, HEADS = 64, 16, 32, 4


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut; `relu` is called twice, as in torchvision."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + shortcut)


class FirstStage(nn.Module):
    """A convolution of its own (`layer1.conv1`) in front of two blocks (`layer1.0`, `layer1.1`)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, 1, 1)
        self.relu = nn.ReLU()
        self.add_module("0", BasicBlock(width, width))
        self.add_module("1", BasicBlock(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.conv1(x))
        return self.get_submodule("1")(self.get_submodule("0")(x))


class SecondStage(nn.Module):
    """Two blocks, the first with a shortcut that has a convolution, and `layer2.conv2` behind them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.add_module("0", BasicBlock(inputs, outputs, 2))
        self.add_module("1", BasicBlock(outputs, outputs))
        self.conv2 = nn.Conv2d(outputs, outputs, 1)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.get_submodule("1")(self.get_submodule("0")(x))
        return self.bn2(self.conv2(x))


class ThirdStage(nn.Module):
    """A bottleneck with a shortcut: conv1, conv2, conv3."""

    def __init__(self, width: int, middle: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, middle, 1)
        self.conv2 = nn.Conv2d(middle, middle, 3, 1, 1)
        self.conv3 = nn.Conv2d(middle, width, 1)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(x + self.conv3(self.relu(self.conv2(self.relu(self.conv1(x))))))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU()))
        self.conv1 = nn.Conv2d(8, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(2)
        self.layer1 = FirstStage(8)
        self.layer2 = SecondStage(8, 16)
        self.layer3 = ThirdStage(16, 24)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.gate = nn.Conv2d(16, 16, 1)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.features(image)
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer3(self.layer2(self.layer1(x)))
        x = self.up(x)
        x = torch.mul(x, torch.nn.functional.sigmoid(self.gate(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.reshape(-1, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in (self.query(x), self.key(x), self.value(x))
        )
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS) + mask
        mixed = torch.matmul(torch.softmax(scores, dim=-1), value)
        return self.out(mixed.transpose(1, 2).reshape(-1, LENGTH, WIDTH))


class EncoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.linear1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.activation = nn.GELU()
        self.linear2 = nn.Linear(2 * WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.linear2(self.activation(self.linear1(x))))


class Transformer(nn.Module):
    """Token embedding, two encoder layers in a ModuleList, a pooled classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(0.3 * torch.randn(LENGTH, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.encoder = nn.ModuleList([EncoderLayer(), EncoderLayer()])
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.classifier = nn.Linear(WIDTH, 10)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        penalty = (1.0 - mask)[:, None, None, :] * -8.0  # what a masked token's score loses
        x = self.norm(self.embedding(tokens) + self.position)
        for layer in self.encoder:
            x = layer(x, penalty)
        return self.classifier(torch.tanh(self.pooler(x.mean(dim=1))))


def resnet() -> nn.Module:
    torch.manual_seed(5)
    network = ResNet()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.6, 1.4)
            nn.init.uniform_(module.bias, -0.3, 0.3)
    images = torch.from_numpy(samples("resnet_torchscript", 32)["image"])
    with torch.no_grad():
        for _ in range(40):  # running statistics that are those of the data
            network(images)
        network.eval()
        network.fc.weight *= 10  # so that the logits differ from image to image, and not only from class to class
        network.fc.bias -= 0.6 * network(images).mean(dim=0)
    return network


def transformer() -> nn.Module:
    torch.manual_seed(6)
    network = Transformer()
    for path, module in network.named_modules():
        if isinstance(module, nn.LayerNorm) and path.startswith("encoder.1"):  # the others share their initial values
            nn.init.uniform_(module.weight, 0.7, 1.3)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    return network.eval()


def write(network: nn.Module, arguments: dict[str, torch.Tensor], outputs: list[str], stem: str) -> None:
    common = {"input_names": list(arguments), "output_names": outputs, "external_data": False, "verbose": False}
    torch.onnx.export(
        network,
        tuple(arguments.values()),
        FOLDER / f"{stem}_torchscript.onnx",
        dynamo=False,
        opset_version=17,
        training=torch.onnx.TrainingMode.PRESERVE,  # keeps the batch normalizations
        do_constant_folding=False,  # keeps the names of parameters
        dynamic_axes={name: {0: "batch"} for name in [*arguments, *outputs]},
        **common,
    )
    batch = torch.export.Dim("batch", min=1, max=64)
    torch.onnx.export(
        network,
        tuple(arguments.values()),
        FOLDER / f"{stem}_dynamo.onnx",
        dynamo=True,
        opset_version=18,
        dynamic_shapes={name: {0: batch} for name in arguments},
        **common,
    )
    without_places(FOLDER / f"{stem}_dynamo.onnx")


def without_places(path: Path) -> None:
    """Drop what tells where a model was written: the traces of source files that the newer exporter adds."""
    model = onnx.load(path)
    for owner in (model, model.graph, *model.graph.node, *model.graph.value_info, *model.graph.initializer):
        kept = [(entry.key, entry.value) for entry in owner.metadata_props if "stack_trace" not in entry.key]
        del owner.metadata_props[:]
        for key, value in kept:
            owner.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def main() -> None:
    image = torch.from_numpy(samples("resnet_torchscript", 4)["image"])
    write(resnet(), {"image": image}, ["logits"], "resnet")
    given = samples("transformer_torchscript", 4)
    write(transformer(), {name: torch.from_numpy(given[name]) for name in (TOKENS, MASK)}, ["logits"], "transformer")


if __name__ == "__main__":
    main()
