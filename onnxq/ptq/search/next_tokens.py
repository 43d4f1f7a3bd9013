"""Decoders are judged by the tokens that they would go on with, not by the numbers of their logits.

Most of a logit's range belongs to tokens that never come next, and what all logits have in common changes nothing: on
stories15M, rotated weights of 4 bits have logits with 1.7 dB less noise and a divergence that is a tenth larger. With
the chances p of the float model and q of the quantized one,

    sum (sqrt p - sqrt q)^2  =  KL(p, q) / 2        where both are close

and since the squares of sqrt p add up to 1, the signal to noise ratio of sqrt p is that of half of the divergence.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from onnxq.graph import Graph

LOGITS = "logits"


def logits_of(graph: Graph, passed_on: Collection[str]) -> str | None:
    """The output of a decoder with a cache that holds its logits: the one of that name, or the only one beside keys
    and values; None for other models."""
    left = [name for name in graph.output_names if name not in passed_on]
    if not passed_on or (LOGITS not in left and len(left) != 1):
        return None
    return LOGITS if LOGITS in left else left[0]


def root_chances(logits: np.ndarray) -> np.ndarray:
    """The square root of each token's probability, along the last axis."""
    if logits.ndim == 0 or logits.size == 0:
        return logits
    values = logits - logits.max(axis=-1, keepdims=True)
    np.exp(values, out=values)
    values /= values.sum(axis=-1, keepdims=True)
    return np.asarray(np.sqrt(values, out=values))
