"""Metrics of models that read text: the entropy of the next token, and which texts an encoder finds alike.

    cross_entropy   mean of -log p(next token), in nats, over all places that the attention mask lets through
    perplexity      its exponential
    retrieval       fraction of samples whose nearest other one, by the cosine of their embeddings, is the float model's

Both first ones are of the tokens that the model is given: its first output with three axes holds the logits
[batch, tokens, vocabulary], its integer input holds the tokens. An embedding is the first floating-point output: its
rows, or with three axes the mean of its tokens that the mask lets through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from onnxq.errors import ConfigError, DataError
from onnxq.runtime.feeds import Feed

OF_TOKENS = ("cross_entropy", "perplexity")
RETRIEVAL = "retrieval"
MASK = "attention_mask"
BESIDE_TOKENS = (MASK, "position_ids", "token_type_ids", "cache_position")
"""Integer inputs that hold no tokens, under the names that exporters of language models give them."""

Outputs = Mapping[str, np.ndarray]


def token_entropy(metric: str, feeds: Sequence[Feed], found: Sequence[Outputs]) -> float:
    """`cross_entropy` or `perplexity` of the tokens in the feeds, each predicted from those in front of it."""
    total, count = 0.0, 0
    for feed, outputs in zip(feeds, found, strict=True):
        logits, tokens = _logits(metric, outputs), _tokens(metric, feed)
        if logits.shape[:2] != tokens.shape:
            raise ConfigError(
                f"{metric} needs logits for every token: the input has {list(tokens.shape)}, the output "
                f"{list(logits.shape)}; give samples without past keys and values"
            )
        given = _mask(feed, tokens.shape)
        counts = given[:, 1:] & given[:, :-1]
        values = logits[:, :-1].astype(np.float64)
        largest = values.max(axis=-1, keepdims=True)
        normal = np.log(np.exp(values - largest).sum(axis=-1)) + largest[..., 0]
        chosen = np.take_along_axis(values, tokens[:, 1:, None].astype(np.int64), axis=-1)[..., 0]
        total += float((normal - chosen)[counts].sum())
        count += int(counts.sum())
    if not count:
        raise DataError(f"{metric} needs samples of two tokens or more: there is no next token to predict")
    mean = total / count
    return float(np.exp(mean)) if metric == "perplexity" else mean


def retrieval(feeds: Sequence[Feed], expected: Sequence[Outputs], found: Sequence[Outputs]) -> float:
    """The fraction of samples for which both models find the same other sample nearest."""
    ours, theirs = (_nearest(_embeddings(feeds, outputs)) for outputs in (expected, found))
    return float((ours == theirs).mean())


def _logits(metric: str, outputs: Outputs) -> np.ndarray:
    for values in outputs.values():
        if values.ndim == 3 and np.issubdtype(values.dtype, np.floating):
            return values
    raise ConfigError(f"{metric} needs an output with three axes: batch, tokens, vocabulary")


def _tokens(metric: str, feed: Feed) -> np.ndarray:
    whole = {name: values for name, values in feed.items() if values.ndim == 2 and values.dtype.kind in "iu"}
    chosen = [name for name in whole if name not in BESIDE_TOKENS]
    if len(chosen) != 1:
        listed = ", ".join(chosen or whole) or "none"
        raise ConfigError(f"{metric} needs one integer input with two axes that holds the tokens; there are: {listed}")
    return whole[chosen[0]]


def _mask(feed: Feed, shape: tuple[int, ...]) -> np.ndarray:
    mask = feed.get(MASK)
    return np.ones(shape, bool) if mask is None or mask.shape != shape else mask.astype(bool)


def _embeddings(feeds: Sequence[Feed], outputs: Sequence[Outputs]) -> np.ndarray:
    return np.concatenate(list(_rows(feeds, outputs)))


def _rows(feeds: Sequence[Feed], outputs: Sequence[Outputs]) -> Iterator[np.ndarray]:
    for feed, each in zip(feeds, outputs, strict=True):
        values = next((one for one in each.values() if np.issubdtype(one.dtype, np.floating) and one.ndim > 1), None)
        if values is None or values.ndim > 3:
            raise ConfigError(f"{RETRIEVAL} needs an output with two axes (samples, numbers) or three (tokens between)")
        if values.ndim == 3:
            given = _mask(feed, values.shape[:2])[..., None]
            values = (values * given).sum(axis=1) / np.maximum(given.sum(axis=1), 1)
        yield values.astype(np.float64)


def _nearest(embeddings: np.ndarray) -> np.ndarray:
    if len(embeddings) < 3:
        raise DataError(f"{RETRIEVAL} needs three samples or more: the nearest of two is always the other one")
    length = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = embeddings / np.maximum(length, np.finfo(np.float64).tiny)
    alike = unit @ unit.T
    np.fill_diagonal(alike, -np.inf)
    return np.asarray(alike.argmax(axis=1))
