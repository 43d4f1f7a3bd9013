"""What the fitting of one block has found, how it gets into a model, and the file that holds it for the next run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.errors import SpecError
from onnxq.files import replace_file
from onnxq.graph import Graph
from onnxq.numerics import dequantize, derived_bias_scale, quantize
from onnxq.ptq.reconstruction.fitting.segment_net import FitNet
from onnxq.runtime.archive import BROKEN
from onnxq.types import QParams, QParamsTable, QuantPlan


@dataclass(frozen=True)
class Outcome:
    """Losses are noise over signal on the samples that decide; `kept` is false for a block that was restored.

    given_up  fitting ended early, since it promised nothing

    scales   leader -> new scale
    zero_points  leader -> new zero point, where it changes with the scale
    weights  name -> integers of their format, with the new scale
    biases   name -> new values
    """

    before: float
    after: float
    seconds: float
    kept: bool
    given_up: bool = field(default=False, kw_only=True)
    scales: Mapping[str, np.ndarray] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    biases: Mapping[str, np.ndarray] = field(default_factory=dict)
    zero_points: Mapping[str, np.ndarray] = field(default_factory=dict)


def found_by(net: FitNet, before: float, after: float, seconds: float) -> Outcome:
    """The numbers of a net after fitting; none where they made the block worse."""
    if not after < before:
        return Outcome(before, after, seconds, False)
    scales = {name: module.to_qparams().scale for name, module in net.scales.items()}
    clipped = {name: module.qparams() for name, module in net.clipped.items() if module.clips}
    scales |= {name: found.scale for name, found in clipped.items()}
    zero_points = {name: found.zero_point for name, found in clipped.items()}
    return Outcome(before, after, seconds, True, scales, net.numbers(), net.bias_values(), zero_points)


def apply(outcome: Outcome, graph: Graph, plan: QuantPlan, qparams: QParamsTable, method: str) -> None:
    """Put what was found into a graph and a table; derived biases and tied tensors follow.

    A weight gets the float values of its numbers, so that rounding to the nearest gives exactly these. SpecError where
    that, or the scale of a bias, is impossible: nothing is changed then.
    """
    new: dict[str, QParams] = {}

    def present(tensor: str) -> QParams:
        return new.get(tensor, qparams[tensor])

    for name in plan.placements:
        scale = outcome.scales.get(plan.leader(name))
        if scale is not None and plan[name].derive is None:
            zero_point = outcome.zero_points.get(plan.leader(name), qparams[name].zero_point)
            new[name] = QParams(qparams[name].spec, scale, zero_point)
    for placement in plan:
        derive = placement.derive
        if derive is not None and any(plan.leader(source) in outcome.scales for source in derive):
            held = qparams[placement.tensor]
            scale = derived_bias_scale(*(present(plan.leader(source)) for source in derive))
            new[placement.tensor] = QParams(held.spec, scale, held.zero_point)
    values = {name: on_grid(q, present(name), graph.values(name).dtype) for name, q in outcome.weights.items()}
    for name, changed in new.items():
        qparams.change(name, changed, f"learnt by {method}")
    for name, written in {**values, **outcome.biases}.items():
        graph.set_values(name, written)
        qparams.integer_weights.pop(name, None)  # integers that somebody fixed before


def on_grid(numbers: np.ndarray, qparams: QParams, dtype: np.dtype[Any]) -> np.ndarray:
    """Float values that are quantized to `numbers`: theirs, or with rounding down the middle of what becomes them."""
    exact = dequantize(numbers, qparams)
    values = exact.astype(dtype)
    if qparams.spec.rounding == "floor":
        wide = numbers.astype(np.int32)
        neighbour = np.where(wide < qparams.spec.qmax, wide + 1, wide - 1)
        values = (exact + np.abs(dequantize(neighbour, qparams) - exact) / 2).astype(dtype)
    if not np.array_equal(quantize(values, qparams), numbers):
        raise SpecError(f"{dtype} cannot hold numbers of {qparams.spec} so that rounding gives them back")
    return values


# ---- files ---------------------------------------------------------------------------------------------------------


KINDS = ("scales", "weights", "biases", "zero_points")


def save_outcome(path: Path, outcome: Outcome) -> None:
    """Write an outcome; the file appears whole or not at all."""
    figures = {key: getattr(outcome, key) for key in ("before", "after", "seconds", "kept", "given_up")}
    arrays = {f"{kind}/{name}": values for kind in KINDS for name, values in getattr(outcome, kind).items()}
    names = {f"array{number}": key for number, key in enumerate(arrays)}
    header = np.array(json.dumps({"figures": figures, "names": names}).encode())
    content = dict(zip(names, arrays.values(), strict=True))
    replace_file(path, lambda stream: np.savez(stream, header=header, **content))


def load_outcome(path: Path) -> Outcome | None:
    """The outcome in a file; None where there is none, or one that cannot be read: the block is fitted again."""
    try:
        with np.load(path, allow_pickle=False) as members:
            header = json.loads(members["header"].tobytes())
            parts: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in KINDS}
            for member, key in header["names"].items():
                kind, _, name = key.partition("/")
                parts[kind][name] = members[member]
            return Outcome(**{**header["figures"], **parts})
    except (*BROKEN, TypeError):
        return None
