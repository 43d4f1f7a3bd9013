"""The small digit classifier and its images that `onnxq demo` quantizes without downloading anything.

`tools/train_demo.py` made both files; their source and licence are in the model's metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, eq=False)
class DemoData:
    """Images are float32 [count, 1, 8, 8] in [0, 1]; labels are int64 [count].

    train_images  images that the model was trained on, with their `train_labels`
    calibration   the first of them
    test_images   images that neither training nor calibration has seen, with their `test_labels`
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    calibration: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def model_path() -> Path:
    """The float model: input `image` [batch, 1, 8, 8], output `logits` [batch, 10]."""
    return Path(__file__).with_name("digits.onnx")


def load_data() -> DemoData:
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as arrays:
        return DemoData(**arrays)
