"""The written file against the float model, on samples that onnxq has not seen, in onnxruntime without optimizations.

SQNR of an output or part: 10 log10(sum of squares of the float values / sum of squares of the differences), over all
samples. Where shapes differ, as after a loop that ended later, what one of both lacks counts as zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from tools.bench.samples import Feed
from tools.zoo.boxes import Outputs
from tools.zoo.model import ZooModel


class DoesNotRun(Exception):
    """A file that onnxruntime does not load or run, or without the outputs of the float model."""


def outputs_of(path: Path, feeds: Sequence[Feed]) -> list[Outputs]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return [dict(zip(names, session.run(None, feed), strict=True)) for feed in feeds]
    except Exception as error:  # onnxruntime has many classes of errors without a common one
        raise DoesNotRun(f"{type(error).__name__}: {error}") from error


def decibels(model: ZooModel, before: Sequence[Outputs], after: Sequence[Outputs]) -> dict[str, float]:
    """SQNR of each float output and part that has any signal; infinite where all is equal, NaN for lost values."""
    missing = [name for name in before[0] if name not in after[0]]
    if missing:
        raise DoesNotRun(f"the file has no output {', '.join(missing)}")
    found = {}
    for name, first in before[0].items():
        if not np.issubdtype(first.dtype, np.floating) or name in model.choices:
            continue
        divided = [part for part in model.parts if part.output == name]
        pairs = [padded(one[name], other[name]) for one, other in zip(before, after, strict=True)]
        for label, pick in [(str(part), part.of) for part in divided] or [(name, _whole)]:
            ratio = sqnr([(pick(one), pick(other)) for one, other in pairs])
            if ratio is not None:
                found[label] = ratio
    return found


def _whole(values: np.ndarray) -> np.ndarray:
    return values


def padded(some: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both with zeros at the ends of axes that are shorter than those of the other."""
    if some.ndim != others.ndim:
        raise DoesNotRun(f"an output has rank {others.ndim}, that of the float model {some.ndim}")
    if some.shape == others.shape:
        return some, others
    shape = np.maximum(some.shape, others.shape)
    grown = [
        np.pad(values, [(0, int(want - has)) for want, has in zip(shape, values.shape, strict=True)])
        for values in (some, others)
    ]
    return grown[0], grown[1]


def sqnr(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float | None:
    """None without any signal."""
    signal = noise = 0.0
    for one, other in pairs:
        wanted, got = one.astype(np.float64), other.astype(np.float64)
        known = np.isfinite(wanted)
        signal += float(np.square(wanted[known]).sum())
        noise += float(np.square(wanted[known] - got[known]).sum())
    if signal == 0:
        return None
    if math.isnan(noise):
        return math.nan
    return math.inf if noise == 0 else 10 * math.log10(signal / noise) if math.isfinite(noise) else -math.inf


def worst(ratios: dict[str, float]) -> tuple[str, float] | None:
    """The lowest one; NaN is lower than everything."""
    if not ratios:
        return None
    return min(ratios.items(), key=lambda item: -math.inf if math.isnan(item[1]) else item[1])
