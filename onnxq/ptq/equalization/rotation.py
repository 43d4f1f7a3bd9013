"""Rotation: the channels of a residual stream are mixed by an orthogonal matrix, folded into the weights around it.

In a transformer whose norms come first, a few channels of the stream are a hundred times as large as all others, and so
are the rows of weights that read them. With an orthogonal R of entries of like size

    X <- X R,     W_in <- R^T diag(gamma) W_in,     W_out <- W_out R,     gamma <- 1

the model computes the same, since norms work on lengths, and every channel holds a part of every outlier (Ashkboos et
al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs", 2024, without the rotations that run in the model). For
LayerNorm, which takes the mean off, R is one that maps the vector of ones to itself; the paper folds the mean into the
layers in front and replaces the norm. R is a Hadamard matrix with random signs, by a random orthogonal one where the
width is no power of two.

Declined, with the reason: norms that come last (BERT), tables of embeddings that are the last layer as well, a stream
that an activation function or an input makes (the convolutions of Whisper), outputs that are channels of it.
"""

from __future__ import annotations

import numpy as np

import onnxq.ptq.equalization.residual_operators  # noqa: F401  (registers the rules)
from onnxq.graph import Graph
from onnxq.ptq.equalization.residual_stream import Stream, Turned, find_streams
from onnxq.ptq.method import Improved, State, Task, at_least, improvement, limits


@improvement(
    "rotation",
    "mixes the channels of a residual stream by an orthogonal matrix inside of the weights, where norms come first",
    "Ashkboos et al., QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs, 2024",
    {"seed": 0},
    check=limits("rotation", seed=at_least(0)),
    rescales=True,
    aliases=("quarot",),
)
def rotation(state: State, task: Task, *, seed: int) -> Improved:
    """Turn every residual stream that constants alone can turn; the outputs stay what they are."""
    streams, declined = find_streams(state.graph)
    if not streams:
        return Improved(state, declined=tuple(declined), hopeless=True)
    own = state.copy()
    lines = []
    for number, stream in enumerate(streams):
        turn(own.graph, stream, orthogonal(stream.width, seed + number, keeps_ones=stream.centered))
        lines.append(
            f"a stream of {stream.width} channels in {len(stream.turned)} constants, {len(stream.gains)} gains"
        )
    return Improved(own, tuple(lines), tuple(declined), recalibrate=True)


def turn(graph: Graph, stream: Stream, matrix: np.ndarray) -> None:
    """Put a matrix into the constants around a stream, and the gains of its norms into the layers behind them."""
    made = {item.constant: _turned(graph, item, matrix) for item in stream.turned}
    made |= {name: np.ones_like(graph.values(name)) for name in stream.gains}
    for name, values in made.items():
        graph.set_values(name, values)


def _turned(graph: Graph, item: Turned, matrix: np.ndarray) -> np.ndarray:
    values = graph.values(item.constant)
    last = np.moveaxis(values, item.axis, -1).astype(np.float64)
    if item.gain is not None:
        gain = graph.values(item.gain).astype(np.float64).reshape(-1)
        last = last / gain if item.divides else last * gain
    return np.ascontiguousarray(np.moveaxis(last @ matrix, -1, item.axis), dtype=values.dtype)


def orthogonal(width: int, seed: int, *, keeps_ones: bool) -> np.ndarray:
    """[width, width] with entries of like size; `keeps_ones`: it maps the vector of ones to itself."""
    random = np.random.default_rng(seed)
    power = width & -width
    matrix = np.ones((1, 1))
    while len(matrix) < power:
        matrix = np.kron(matrix, np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2))
    if width > power:
        matrix = np.kron(matrix, np.linalg.qr(random.normal(size=(width // power,) * 2))[0])
    matrix = matrix * random.choice([-1.0, 1.0], size=(width, 1))
    if not keeps_ones or width == 1:
        return np.asarray(matrix * matrix[0, 0] if width == 1 else matrix)
    ones = np.full(width, width**-0.5)
    mirror = ones @ matrix - ones
    return np.asarray(matrix - 2 * np.outer(matrix @ mirror, mirror) / (mirror @ mirror))
