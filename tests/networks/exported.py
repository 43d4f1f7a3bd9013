"""Networks as PyTorch's exporters write them, and data to calibrate them with; `make_exports.py` wrote the files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

IMAGE, TOKENS, MASK = "image", "tokens", "mask"
NETWORKS = ("resnet_torchscript", "resnet_dynamo", "transformer_torchscript", "transformer_dynamo")
_VOCABULARY, _LENGTH, _SIDE, _CHANNELS = 64, 16, 32, 3


def exported(name: str) -> Path:
    """The file of one of `NETWORKS`."""
    if name not in NETWORKS:
        raise ValueError(f"no exported network is called '{name}'; there are {', '.join(NETWORKS)}")
    return Path(__file__).resolve().parent / f"{name}.onnx"


def samples(name: str, count: int = 8) -> dict[str, np.ndarray]:
    """Input name -> `count` samples along the first axis; the same ones at every call.

    The ResNets get images of a few smooth waves with a little noise, the transformers sentences that end in padding.
    """
    exported(name)  # refuses an unknown name
    return _images(count) if name.startswith("resnet") else _sentences(count)


def _images(count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)
    rows, columns = np.meshgrid(np.linspace(0, 1, _SIDE), np.linspace(0, 1, _SIDE), indexing="ij")
    image = np.zeros((count, _CHANNELS, _SIDE, _SIDE))
    for _ in range(4):
        angle, frequency, phase, strength = random.uniform(
            (0.0, 1.0, 0.0, 0.2), (np.pi, 5.0, 2 * np.pi, 0.8), (count, _CHANNELS, 4)
        ).transpose(2, 0, 1)[..., None, None]
        along = np.cos(angle) * rows + np.sin(angle) * columns
        image += strength * np.sin(2 * np.pi * frequency * along + phase)
    image += random.uniform(-1, 1, (count, _CHANNELS, 1, 1)) + random.normal(0, 0.05, image.shape)
    return {IMAGE: image.astype(np.float32)}


def _sentences(count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(12)
    lengths = random.integers(_LENGTH // 2, _LENGTH + 1, count)
    mask = (np.arange(_LENGTH) < lengths[:, None]).astype(np.float32)
    tokens = random.integers(1, _VOCABULARY, (count, _LENGTH)) * mask.astype(np.int64)
    return {TOKENS: tokens, MASK: mask}
