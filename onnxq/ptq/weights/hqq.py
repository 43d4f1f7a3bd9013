"""Scales and zero points of weights without data, by an error that hardly counts a few large deviations.

Badri, Shaji: "Half-Quadratic Quantization of Large Machine Learning Models", 2023. With e = (W - Q) / scale in steps,
the sum of |e|^p with p < 1 is made smaller by turns:

    d     = shrink(e)                 sign(e) max(|e| - |e|^(p-1) / beta, 0), what is taken to be an outlier
    zero  = mean(q - (W / scale - d))
    scale = sum((W - d scale) (q - zero)) / sum((q - zero)^2)

and beta grows. The paper keeps zero points as real numbers and leaves scales as they are. Zero points of ONNX are
integers, which a mean seldom moves by a whole step, so that the next ones are tried too; symmetric formats have none.
So scales are fitted here too, to the same numbers q and without the outliers. For each cell the parameters with the
least error are kept, the old ones if none is better. Errors are measured in units of the old step, in which an error
has the same meaning for every candidate.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxq.json_file import JsonObject
from onnxq.numerics import MIN_SCALE, fake_quantize, with_float16_scale
from onnxq.numerics.ranges import MAX_SCALE, with_minimum_scale
from onnxq.ptq.method import Improved, Limit, State, Task, at_least, improvement, limits
from onnxq.ptq.weights.cells import reduce_cells, spread
from onnxq.ptq.weights.own_scales import put_shared, searchable_weights, shared_values
from onnxq.types import QParams, QuantSpec

BETA, GROWTH = 10.0, 1.01


@improvement(
    "hqq",
    "zero points and scales of weights by an error that hardly counts outliers; needs no data",
    "Badri & Shaji 2023",
    {"p": 0.7, "iterations": 20},
    needs_data=False,
    check=limits("hqq", p=Limit("must be above 0 and at most 1", lambda value: 0 < value <= 1), iterations=at_least(1)),
)
def hqq(state: State, task: Task, *, p: float, iterations: int) -> Improved:
    """Choose the parameters of all quantized weights; p is the exponent of the error."""
    result = state.copy()
    sharing, own, declined = searchable_weights(state)
    changed: list[str] = []
    details: JsonObject = {}
    for done, placement in enumerate(own):
        task.progress("hqq", done, len(own))
        values, held = shared_values(state.graph, sharing, placement.tensor), state.qparams[placement.tensor]
        float16 = state.graph.dtype(placement.tensor) == np.float16
        found = hqq_tensor(
            values, held, p=p, iterations=iterations, minimum_scale=placement.minimum_scale, float16=float16
        )
        before, after = (float(_errors(values, each, held, p).sum()) / values.size for each in (held, found))
        if after >= before:
            declined.append(f"{placement.tensor}: no other parameters have a smaller error")
            continue
        put_shared(result.qparams, sharing, placement.tensor, found, "hqq")
        changed.append(f"{placement.tensor}: mean of |error in steps|^{p:g} {before:.3g} -> {after:.3g}")
        details[placement.tensor] = {"before": before, "after": after}
    return Improved(result if changed else state, tuple(changed), tuple(declined), details=details)


def hqq_tensor(
    values: np.ndarray,
    held: QParams,
    *,
    p: float = 0.7,
    iterations: int = 20,
    minimum_scale: float = 0.0,
    float16: bool = False,
) -> QParams:
    """The parameters with the least error of each cell, within the limits that calibration holds scales in."""
    best, least = held, _errors(values, held, held, p)
    for scale, zero_point in _half_quadratic(values, held, p, iterations):
        tried = [(scale, zero_point)]
        if not held.spec.symmetric:
            tried += [(best.scale, best.zero_point - 1), (best.scale, best.zero_point + 1)]
        for found in (_legal(held.spec, *each, minimum_scale, float16) for each in tried):
            errors = _errors(values, found, held, p)
            better = errors < least
            least = np.where(better, errors, least)
            chosen = np.where(better, found.scale, best.scale)
            best = QParams(held.spec, chosen, np.where(better, found.zero_point, best.zero_point))
    return best


def _half_quadratic(
    values: np.ndarray, start: QParams, p: float, iterations: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scales and zero points after each iteration."""
    spec, shape = start.spec, values.shape
    scale, zero = start.scale.astype(np.float64), start.zero_point.astype(np.float64)
    count = reduce_cells(np.ones(shape), spec.granularity, np.add)
    beta = BETA
    for _ in range(iterations):
        each_scale, each_zero = spread(scale, spec.granularity, shape), spread(zero, spec.granularity, shape)
        steps = _steps(values, each_scale, each_zero, start)
        error = values / each_scale - steps
        size = np.maximum(np.abs(error), 1e-12)
        outlier = np.sign(error) * np.maximum(size - size ** (p - 1) / beta, 0.0)
        if not spec.symmetric:
            off = reduce_cells(steps + each_zero - (values / each_scale - outlier), spec.granularity, np.add)
            zero = np.clip(np.rint(off / count), spec.qmin, spec.qmax)
            steps = steps + each_zero - spread(zero, spec.granularity, shape)
        squares = reduce_cells(steps * steps, spec.granularity, np.add)
        fitted = reduce_cells((values - outlier * each_scale) * steps, spec.granularity, np.add)
        same_side = fitted * np.sign(scale) > 0
        scale = np.where((squares > 0) & same_side, fitted / np.maximum(squares, 1e-30), scale)
        beta *= GROWTH
        yield scale, zero


def _steps(values: np.ndarray, scale: np.ndarray, zero: np.ndarray, start: QParams) -> np.ndarray:
    """q - zero for scales and zero points that are real numbers."""
    spec = start.spec
    if spec.evenly_spaced:
        return np.asarray(np.clip(np.rint(values / scale + zero), spec.qmin, spec.qmax) - zero)
    unit = np.ones((), np.float32), np.zeros((), np.int32)
    return spec.format.fake((values / scale).astype(np.float32), *unit, spec).astype(np.float64)


def _legal(spec: QuantSpec, scale: np.ndarray, zero_point: np.ndarray, minimum_scale: float, float16: bool) -> QParams:
    """The parameters of the format that are nearest to these numbers."""
    scale = np.copysign(np.clip(np.abs(scale.astype(np.float64)), MIN_SCALE, MAX_SCALE), scale)
    if spec.power_of_two:
        scale = np.exp2(np.rint(np.log2(scale)))
    scale = spec.format.legal_scale(scale)
    whole = np.clip(np.rint(zero_point), spec.qmin, spec.qmax) if not spec.symmetric else np.zeros(scale.shape)
    found = with_minimum_scale(QParams(spec, scale, whole.astype(np.int32)), minimum_scale)
    return with_float16_scale(found) if float16 else found


def _errors(values: np.ndarray, qparams: QParams, unit: QParams, p: float) -> np.ndarray:
    """The sum of |W - Q|^p over each cell, in steps of `unit`."""
    step = spread(unit.scale, unit.spec.granularity, values.shape)
    off = np.abs((values - fake_quantize(values, qparams)) / step)
    return reduce_cells(off.astype(np.float64) ** p, unit.spec.granularity, np.add)
