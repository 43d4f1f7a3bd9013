"""Prompts that the float model writes itself: text of its own distribution, where none is at hand.

Tokens are drawn from the probabilities that the model gives them, one after the other, behind its cache. On such text a
model's cross-entropy is its own entropy, so that what a quantized one loses is, in expectation, the divergence of its
next tokens from those of the float model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.integrations.huggingface.decoder import Decoder
from onnxq.integrations.huggingface.genai_config import GENAI_CONFIG
from onnxq.runtime.session import float_session, run_session

SPEC = re.compile(r"sampled(?::(?P<count>\d+)(?:x(?P<length>\d+))?)?(?:@(?P<seed>\d+))?")
COUNT, LENGTH = 32, 128
BATCH = 16
"""Prompts that are drawn together: a step costs little more than for one."""


@dataclass(frozen=True)
class Sampled:
    """How many prompts, how many tokens each has, and the seed that they are drawn with."""

    count: int = COUNT
    length: int = LENGTH
    seed: int = 0

    @classmethod
    def of(cls, text: object) -> Sampled | None:
        """What `sampled`, `sampled:64`, `sampled:64x256` or `sampled:64x256@1` says; None for other data."""
        match = SPEC.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            return None
        given = {name: int(value) for name, value in match.groupdict().items() if value is not None}
        found = cls(**given)
        if found.count < 1 or found.length < 2:
            raise ConfigError(f"'{text}': one prompt of two tokens is the least")
        return found


def begin_token(folder: Path) -> int | None:
    """The token that texts begin with, as the configurations of a folder say it."""
    for name in (GENAI_CONFIG, "generation_config.json", "config.json"):
        try:
            values = json.loads((folder / name).read_text(encoding="utf-8"))
            values = values["model"] if name == GENAI_CONFIG else values
            found = values.get("bos_token_id")
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            continue  # these files are kept as they are, and need not be there
        if isinstance(found, int) and found >= 0:
            return found
    return None


def sample_prompts(graph: Graph, decoder: Decoder, wanted: Sampled, begin: int | None = None) -> list[np.ndarray]:
    """Numbers of tokens [length] of each prompt; the first is `begin`, or where that is not known any token."""
    random = np.random.default_rng(wanted.seed)
    length = wanted.length if decoder.context is None else min(wanted.length, decoder.context)
    prompts: list[np.ndarray] = []
    session = float_session(graph)

    def first() -> np.ndarray:
        batch = min(BATCH, wanted.count - len(prompts))
        if begin is not None:
            return np.full(batch, begin, np.int64)
        logits = run_session(session, [decoder.logits], decoder.feed(np.zeros((1, 1), np.int64)), "token 0")[0]
        return random.integers(0, logits.shape[-1], batch)

    while len(prompts) < wanted.count:
        drawn = _drawn(session, decoder, first(), length, random)
        prompts += list(np.stack(list(drawn), axis=1))
    return prompts


def _drawn(
    session: Any, decoder: Decoder, tokens: np.ndarray, length: int, random: np.random.Generator
) -> Iterator[np.ndarray]:
    """The tokens of all prompts of a batch at one place after the other."""
    names = [decoder.logits, *decoder.past.values()]
    past: dict[str, np.ndarray] | None = None
    yield tokens
    for place in range(1, length):
        feed = decoder.feed(tokens[:, None], past)
        outputs = dict(zip(names, run_session(session, names, feed, f"token {place}"), strict=True))
        tokens, past = _choose(outputs[decoder.logits][:, -1], random), decoder.continued(outputs)
        yield tokens


def _choose(logits: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A token of each row, with the probabilities that its logits say."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True)).cumsum(axis=-1, dtype=np.float64)
    drawn = random.random((len(weights), 1)) * weights[:, -1:]
    return np.asarray((weights <= drawn).sum(axis=-1), np.int64)
