"""Trains the digit classifier that `onnxq demo` quantizes, and writes it with its data into onnxq/demo/.

The network is small but has what makes quantization interesting: batch norms that are still separate from their
convolutions, a residual addition, a depthwise convolution with a ReLU6, two kinds of pooling and a Gemm. The ONNX file
is written node by node, under the names of the torch modules, so that it does not change with torch's exporter.

Run it with torch and scikit-learn installed: `pip install -c constraints.txt -e .[torch,dev]`, then
`python -m tools.train_demo`. It takes about a minute, and the same seed gives the same files on the same machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

from tools.written_networks import ConvBatchNorm, GraphWriter

SEED = 7
EPOCHS = 60
BATCH = 64
TEST_COUNT = 450
CALIBRATION_COUNT = 128
LOWEST_ACCURACY = 0.98
LARGEST_DIFFERENCE = 1e-4
FOLDER = Path(__file__).resolve().parent.parent / "onnxq" / "demo"
METADATA = {
    "description": "Convolutional classifier of handwritten digits (8x8 grey values in [0, 1]); float32, not folded.",
    "dataset": "Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, 1998; UCI, CC BY 4.0), "
    "in the 1,797-image version of scikit-learn's load_digits.",
    "licence": "Model: Apache-2.0. Data: CC BY 4.0.",
}


class DigitNet(nn.Module):
    """Stem, residual block, max pool, depthwise-separable block, convolution, global pool, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBatchNorm(1, 32, activation=nn.ReLU())
        self.residual1 = ConvBatchNorm(32, 32, activation=nn.ReLU())
        self.residual2 = ConvBatchNorm(32, 32)
        self.depthwise = ConvBatchNorm(32, 32, groups=32, activation=nn.ReLU6())
        self.pointwise = ConvBatchNorm(32, 64, kernel=1, activation=nn.ReLU())
        self.head = ConvBatchNorm(64, 64, activation=nn.ReLU())
        self.classifier = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = functional.relu(x + self.residual2(self.residual1(x)))
        x = functional.max_pool2d(x, 2)
        x = self.head(self.pointwise(self.depthwise(x)))
        return self.classifier(x.mean(dim=(2, 3)))


@dataclass(frozen=True)
class Digits:
    """Images are float32 [count, 1, 8, 8] in [0, 1]; labels are int64 [count]."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def read_digits() -> Digits:
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]  # the data set counts from 0 to 16
    labels = digits.target.astype(np.int64)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=TEST_COUNT, random_state=SEED, stratify=labels
    )
    return Digits(train_images, train_labels, test_images, test_labels)


def train(digits: Digits) -> DigitNet:
    """Adam with a cosine schedule; every batch is shifted by up to one pixel, which is what the small set lacks."""
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    images, labels = torch.from_numpy(digits.train_images), torch.from_numpy(digits.train_labels)
    model = DigitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    steps = EPOCHS * math.ceil(len(images) / BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for epoch in range(EPOCHS):
        total = 0.0
        for rows in torch.randperm(len(images)).split(BATCH):
            loss = functional.cross_entropy(model(shifted(images[rows])), labels[rows], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3d}: training loss {total / len(images):.4f}")
    return model.eval()


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Move the whole batch by -1, 0 or 1 pixels in each direction, zeros coming in."""
    down, right = (int(step) for step in torch.randint(0, 3, (2,)))
    padded = functional.pad(images, (1, 1, 1, 1))
    return padded[:, :, down : down + 8, right : right + 8]


def to_onnx(model: DigitNet) -> onnx.ModelProto:
    write = GraphWriter()
    stem = write.block("stem", model.stem, "image")
    x = write.block("residual1", model.residual1, stem)
    x = write.block("residual2", model.residual2, x)
    x = write.node("Relu", "residual.relu", [write.node("Add", "residual.add", [stem, x])])
    x = write.node("MaxPool", "pool", [x], kernel_shape=[2, 2], strides=[2, 2])
    for name in ("depthwise", "pointwise", "head"):
        x = write.block(name, getattr(model, name), x)
    write.classifier("classifier", model.classifier, x)
    return write.model("digits", (1, 8, 8), 10, producer="onnxq train_demo", metadata=METADATA)


def check(model: DigitNet, exported: onnx.ModelProto, digits: Digits) -> float:
    """Return the accuracy of the ONNX file on the test images; stop when it is low or differs from torch."""
    session = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"image": digits.test_images})
    with torch.no_grad():
        expected = model(torch.from_numpy(digits.test_images)).numpy()
    difference = float(np.abs(logits - expected).max())
    accuracy = float((logits.argmax(axis=1) == digits.test_labels).mean())
    print(f"largest difference between torch and onnxruntime: {difference:.2e}")
    print(f"accuracy on {len(logits)} held-out images: {accuracy:.2%}")
    if difference > LARGEST_DIFFERENCE:
        raise SystemExit(f"the ONNX file differs from torch by more than {LARGEST_DIFFERENCE}; nothing was written")
    if accuracy < LOWEST_ACCURACY:
        raise SystemExit(f"the accuracy is below {LOWEST_ACCURACY:.0%}; nothing was written")
    return accuracy


def main() -> None:
    digits = read_digits()
    model = train(digits)
    exported = to_onnx(model)
    check(model, exported, digits)
    onnx.save(exported, FOLDER / "digits.onnx")
    np.savez_compressed(
        FOLDER / "digits.npz",
        calibration=digits.train_images[:CALIBRATION_COUNT],
        train_images=digits.train_images,
        train_labels=digits.train_labels,
        test_images=digits.test_images,
        test_labels=digits.test_labels,
    )
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{parameters:,} parameters")
    for name in ("digits.onnx", "digits.npz"):
        print(f"{name}: {(FOLDER / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
