"""The demo network with its digits, prepared for training and trained for a few steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from onnxq import demo
from onnxq.qat import QatNet, prepare
from onnxq.types import Backend

DATA = demo.load_data()


def samples(count: int = 32) -> list[dict[str, np.ndarray]]:
    return [{"image": image[None]} for image in DATA.calibration[:count]]


def prepared(backend: str | Backend, config: dict[str, Any] | None = None, **options: Any) -> QatNet:
    return prepare(demo.model_path(), backend, samples(), config, **options)


def trained(net: QatNet, steps: int = 50, *, batch: int = 16, lr: float = 2e-4, scale_lr: float = 1e-4) -> QatNet:
    """A loop as a user would write it."""
    torch.manual_seed(0)
    own, scales = [], []
    for name, parameter in net.named_parameters():
        (scales if name.startswith("fake_quantizers.") else own).append(parameter)
    optimizer = torch.optim.Adam([{"params": own, "lr": lr}, {"params": scales, "lr": scale_lr}])
    images, labels = torch.from_numpy(DATA.train_images), torch.from_numpy(DATA.train_labels)
    for _ in range(steps):
        rows = torch.randint(0, len(images), (batch,))
        loss = cross_entropy(net(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def accuracy(net: QatNet) -> float:
    was_training = net.training
    net.eval()
    with torch.no_grad():
        found = net(torch.from_numpy(DATA.test_images)).argmax(1).numpy()
    net.train(was_training)
    return float((found == DATA.test_labels).mean())
