"""What a decoder is worth: how much worse it predicts a text than the float model, and its tokens per second.

Texts go through the model in pieces, each behind the cache that the model itself has made of those before, so that
what a quantized cache costs counts. Times are processor time on one thread: other work on the machine counts little.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

PIECE = 32
"""Tokens that go through at once."""
BEFORE, TOKENS = 64, 64
"""Tokens in the cache when the clock starts, and those that are timed, one at a time."""


class DecoderFile:
    """A decoder in onnxruntime on one thread, with the past that it has made."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.path = path
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.caches = [one for one in self.session.get_inputs() if one.name.startswith("past_key_values")]
        self.outputs = ["logits", *(one.name.replace("past_key_values", "present") for one in self.caches)]
        self.restart()

    def restart(self) -> None:
        kinds = {"tensor(float)": np.float32, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8}
        self.past = [np.zeros((1, one.shape[1], 0, one.shape[3]), kinds[one.type]) for one in self.caches]

    def step(self, ids: np.ndarray) -> Any:
        """Logits [tokens, words] of the next tokens [tokens]; the past grows by them."""
        mask = np.ones((1, self.past[0].shape[2] + len(ids)), np.int64)
        feed = {"input_ids": ids[None], "attention_mask": mask}
        feed |= {one.name: values for one, values in zip(self.caches, self.past, strict=True)}
        logits, *self.past = self.session.run(self.outputs, feed)
        return logits[0]

    def megabytes(self) -> float:
        """Of the file and of the data beside it."""
        return sum(one.stat().st_size for one in self.path.parent.glob(f"{self.path.name}*")) / 1e6


def log_probabilities(model: DecoderFile, prompt: np.ndarray) -> np.ndarray:
    """[tokens - 1, words] that a model gives the next tokens of a prompt."""
    model.restart()
    logits = np.concatenate([model.step(prompt[start : start + PIECE]) for start in range(0, len(prompt), PIECE)])[:-1]
    logits -= logits.max(axis=1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))


@dataclass(frozen=True)
class Losses:
    """Means over all tokens, in nats: cross-entropy above that of the float model, with the standard error over the
    prompts, and the divergence from the float model's next tokens; agreement of the likeliest ones."""

    rise: float
    error: float
    divergence: float
    agreement: float


def losses(
    models: Mapping[str, DecoderFile], reference: DecoderFile, prompts: Sequence[np.ndarray]
) -> tuple[float, dict[str, Losses]]:
    """The cross-entropy of the float model, and what each of the others loses."""
    entropies: list[float] = []
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in models}
    for prompt in prompts:
        real = log_probabilities(reference, prompt)
        at, shares, best = (np.arange(len(real)), prompt[1:]), np.exp(real), real.argmax(axis=1)
        entropies.append(-float(real[at].mean(dtype=np.float64)))
        for name, model in models.items():
            own = log_probabilities(model, prompt)
            rise = float((real[at] - own[at]).mean(dtype=np.float64))
            divergence = float((shares * (real - own)).sum(axis=1, dtype=np.float64).mean())
            found[name].append((rise, divergence, float((best == own.argmax(axis=1)).mean())))
    root = math.sqrt(len(prompts))
    result = {}
    for name, rows in found.items():
        rise, divergence, agreement = np.mean(rows, axis=0)
        error = np.std([row[0] for row in rows], ddof=1) / root
        result[name] = Losses(float(rise), float(error), float(divergence), float(agreement))
    return float(np.mean(entropies)), result


def seconds_per_token(model: DecoderFile) -> float:
    """Processor time of a token, one at a time behind the cache."""
    model.restart()
    model.step(np.full(BEFORE, 1, np.int64))
    token = np.array([1], np.int64)
    model.step(token)
    start = time.process_time()
    for _ in range(TOKENS):
        model.step(token)
    return (time.process_time() - start) / TOKENS
