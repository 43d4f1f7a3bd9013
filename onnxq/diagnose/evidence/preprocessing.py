"""Data that the network was not trained on, seen by the statistics that its first batch norms have kept.

A batch norm holds mean and variance of what it read in training. Data that is prepared as in training gives nearly the
same; other numbers, or colours in another order, do not. Each way to prepare images is tried on the samples, and one
that fits clearly better than what was given is the evidence. The distance of two normal distributions is the divergence

    KL = (v / s + (m - u)^2 / s - 1 - log(v / s)) / 2        m, v observed; u, s in the batch norm

in nats, the mean over channels. A model whose batch norms are gone, folded by its exporter, has nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.diagnose.causes import WrongPreprocessing
from onnxq.diagnose.images import (
    Transformation,
    Values,
    alternatives,
    image_axis,
    meanings,
    values_of,
)
from onnxq.graph import Graph, Node
from onnxq.runtime import input_infos
from onnxq.runtime.feeds import Feed
from onnxq.runtime.preprocessing import Preprocessing
from onnxq.runtime.session import float_session, run_session

BATCH_NORMS = 3
"""How many of the first ones are asked: statistics further behind depend on more than the data."""

FITS = 0.1
"""Nats up to which data counts as what the network was trained on. Of fourteen trained networks on four samples that
were prepared as they should be, ten lie between 0.03 and 0.31, four between 0.5 and 1.03: far alone proves nothing."""

FAR = 0.25
"""Nats from which data is suspected: calibration samples are few, and others than in training."""

BETTER = 3.0
"""Only what is this many times nearer to the statistics is claimed."""

MOST_OF_A_CHANNEL = 25.0
"""One channel must not decide alone."""


@dataclass(frozen=True)
class Preprocessed:
    """The finding, and how the samples become what they should have been."""

    finding: WrongPreprocessing
    transformation: Transformation


def wrong_preprocessing(
    original: Graph, feeds: Sequence[Feed], preprocess: Preprocessing | None, *, images: bool
) -> Preprocessed | None:
    """What fits the batch norms clearly better than the given samples; None where nothing does.

    `images` says that the samples were made of images by `preprocess`; of arrays the range tells what they may be.
    """
    names = _batch_norms(original)
    inputs = [(info.name, axis) for info in input_infos(original) if (axis := image_axis(info)) is not None]
    if not names or len(inputs) != 1 or not feeds:
        return None
    ((name, axis),) = inputs
    finite = [array[np.isfinite(array)] for array in (feed[name] for feed in feeds)]
    finite = [array for array in finite if array.size]
    if not finite:
        return None
    low, high = min(float(array.min()) for array in finite), max(float(array.max()) for array in finite)
    known = (values_of(preprocess or Preprocessing()),) if images else meanings(low, high)
    session = float_session(original, [node.inputs[0].name for node in names])
    distance = _distance(original, session, names, feeds)
    if not np.isfinite(distance) or distance < FAR:
        return None
    best: tuple[float, Transformation] | None = None
    for given in known:
        if given.color not in ("RGB", "BGR"):
            continue
        for wanted in alternatives(given):
            change = Transformation(name, axis, given, wanted)
            found = _distance(original, session, names, [change(feed) for feed in feeds])
            if np.isfinite(found) and (best is None or found < best[0]):
                best = found, change
    if best is None or best[0] > FITS or best[0] * BETTER > distance:
        return None
    other, change = best
    finding = WrongPreprocessing(
        name, _text(change.given), change.wanted.text(), distance, other, tuple(node.name for node in names)
    )
    return Preprocessed(finding, change)


def _text(values: Values) -> str:
    return values.text()


def _batch_norms(graph: Graph) -> list[Node]:
    """The first batch norms of the main graph that hold statistics."""
    found = []
    for node in graph.nodes("BatchNormalization"):
        held = len(node.inputs) >= 5 and all(graph.is_constant(tensor) for tensor in node.inputs[3:5])
        if held and not graph.is_constant(node.inputs[0]) and graph.home_of(node.outputs[0]) is graph.scopes()[0]:
            found.append(node)
    return found[:BATCH_NORMS]


def _distance(graph: Graph, session: object, nodes: Sequence[Node], feeds: Iterable[Feed]) -> float:
    """Of the samples from the statistics, the mean over the channels of all these batch norms.

    Values that are no finite numbers say nothing, nor do channels without any others; NaN where there is none left.
    """
    names = [node.inputs[0].name for node in nodes]
    sums: dict[str, list[np.ndarray]] = {}
    for number, feed in enumerate(feeds):
        for name, array in zip(names, run_session(session, names, feed, f"sample {number}"), strict=True):
            rows = np.moveaxis(np.asarray(array, np.float64), 1, 0)
            rows = rows.reshape(len(rows), -1)
            finite = np.isfinite(rows)
            rows = np.where(finite, rows, 0.0)
            sums.setdefault(name, []).append(np.stack([finite.sum(1), rows.sum(1), (rows * rows).sum(1)]))
    found = []
    for node, name in zip(nodes, names, strict=True):
        held = np.sum(sums[name], axis=0)
        seen = held[0] > 0
        count, total, squares = held[:, seen]
        mean = total / count
        variance = np.maximum(squares / count - mean * mean, 0.0)
        kept_mean, kept = (graph.values(tensor).astype(np.float64)[seen] for tensor in node.inputs[3:5])
        epsilon = float(node.attrs.get("epsilon", 1e-5))
        kept, variance = kept + epsilon, variance + epsilon
        divergence = 0.5 * (variance / kept + (mean - kept_mean) ** 2 / kept - 1.0 - np.log(variance / kept))
        found.append(np.minimum(divergence, MOST_OF_A_CHANNEL))
    nats = np.concatenate(found)
    return float(np.mean(nats)) if nats.size else float("nan")
