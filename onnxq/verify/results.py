"""The figures of a result, that of an output or of a part of one, summed up over samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from onnxq.graph import Graph
from onnxq.graph.joined import Join, evaluated_parts
from onnxq.graph.scored import scores_of
from onnxq.numerics import SqnrAccumulator
from onnxq.verify.decisions import DecisionCount
from onnxq.verify.report import ResultCheck, SampleFigures


class ResultSums:
    """One result of the float model against the quantized one, sample after sample.

    total    all samples together
    noise    squared error of each sample
    """

    def __init__(self, decisions: DecisionCount | None = None) -> None:
        self.total = SqnrAccumulator()
        self.noise: list[float] = []
        self._signal: list[float] = []
        self._numbers: list[int] = []
        self._decisions = decisions

    def add(self, number: int, expected: np.ndarray, measured: np.ndarray) -> None:
        """Take in the sample with this number; both arrays have one shape."""
        own = SqnrAccumulator()
        own.add(expected, measured)
        self.total.merge(own)
        self.noise.append(own.mse * own.compared)
        self._signal.append(own.power * own.compared)
        self._numbers.append(number)
        if self._decisions is not None:
            self._decisions.add(expected, measured)

    @classmethod
    def together(cls, parts: Sequence[ResultSums]) -> ResultSums:
        """Several parts of the same samples as one."""
        if len(parts) == 1:
            return parts[0]
        whole = cls(DecisionCount.together([part._decisions for part in parts]))
        for part in parts:
            whole.total.merge(part.total)
        whole.noise = [math.fsum(values) for values in zip(*(part.noise for part in parts), strict=True)]
        whole._signal = [math.fsum(values) for values in zip(*(part._signal for part in parts), strict=True)]
        whole._numbers = parts[0]._numbers
        return whole

    def check(self, name: str, output: str) -> ResultCheck:
        """What was found, under the name of the result."""
        decisions = None if self._decisions is None else self._decisions.found()
        return ResultCheck(name, output, self.total.value, self.total.silent, self._per_sample(), decisions)

    def _per_sample(self) -> SampleFigures | None:
        if not self.total.compared:
            return None
        each = [_db(signal, noise) for signal, noise in zip(self._signal, self.noise, strict=True)]
        worst = max(range(len(each)), key=lambda index: (self.noise[index], -index))
        whole = math.fsum(self.noise)
        share = self.noise[worst] / whole if 0 < whole < math.inf else float(whole > 0)
        middle = sorted(each)[(len(each) - 1) // 2]
        return SampleFigures(len(each), middle, self._numbers[worst], each[worst], share, _margin_db(self.noise))


def _margin_db(noise: Sequence[float]) -> float:
    """By how many dB a sum of noise would grow with its standard error, as far as its samples tell."""
    count, whole = len(noise), math.fsum(noise)
    if count < 2 or not 0 < whole < math.inf:
        return 0.0
    return 10 * math.log10(1 + standard_error([value / whole - 1 / count for value in noise]))


def standard_error(deviations: Sequence[float]) -> float:
    """The standard error of the sum of two samples or more, from how far each is from the mean of all."""
    count = len(deviations)
    return math.sqrt(count / (count - 1) * math.fsum(deviation**2 for deviation in deviations))


def _db(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    return 10 * (math.log10(signal) - math.log10(noise)) if signal > 0 and noise < math.inf else -math.inf


def is_float(values: object) -> bool:
    """Whether a result is an array of floating-point numbers, which have an SQNR."""
    return isinstance(values, np.ndarray) and (values.dtype.kind == "f" or values.dtype.name == "bfloat16")


Outputs = Mapping[str, np.ndarray]


class ExpectedResults:
    """What the float model makes of some samples, and which of its outputs count as several parts."""

    def __init__(self, joined: Mapping[str, Sequence[Join]], expected: Sequence[Outputs]) -> None:
        """`joined` are the joins of the float model (`onnxq.graph.joined.joins`)."""
        self._expected = expected
        self._parts: dict[str, tuple[Join, list[int]]] = {}
        for name, found in joined.items():
            outputs = [each[name] for each in expected]
            if all(map(is_float, outputs)):
                parts = evaluated_parts(found, partial(_powers_of, outputs))
                if parts is not None:
                    self._parts[name] = parts

    def compare(self, measured: Sequence[Outputs]) -> dict[str, ResultSums]:
        """The sums of each floating-point output, or part of one, of another model on the same samples."""
        sums: dict[str, ResultSums] = {}
        for number, (expected, outputs) in enumerate(zip(self._expected, measured, strict=True)):
            for name, whole in expected.items():
                if not is_float(whole):
                    continue
                # A condition or a selection inside the model may have come out differently.
                other = outputs[name] if outputs[name].shape == whole.shape else np.zeros_like(whole)
                for label, one, test in self._split(name, whole, other):
                    sums.setdefault(label, ResultSums()).add(number, one, test)
        return sums

    def _split(
        self, name: str, expected: np.ndarray, measured: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        if name not in self._parts:
            yield name, expected, measured
            return
        join, shown = self._parts[name]
        parts = list(zip(join.labels(name), join.cut(expected) or (), join.cut(measured) or (), strict=True))
        yield from (parts[index] for index in shown)


def _powers_of(outputs: Sequence[np.ndarray], join: Join) -> list[float]:
    """The mean square of each part over all samples; empty where one of these has other parts."""
    cut = [join.cut(output) for output in outputs]
    if any(parts is None for parts in cut):
        return []
    found = []
    for part in zip(*(parts or () for parts in cut), strict=True):
        total = SqnrAccumulator()
        for values in part:
            total.add(values, values)
        found.append(total.power)
    return found


class PartSums:
    """The parts of all outputs of a model, in every way that its graph knows; that has shapes (`with_shapes`)."""

    def __init__(self, graph: Graph, found: Mapping[str, Sequence[Join]]) -> None:
        self._graph, self._joins = graph, found
        self._sums: dict[tuple[str, Join], list[ResultSums]] = {}

    def decisions(self, output: str) -> DecisionCount | None:
        """A count of an output's decisions; None where it has none."""
        scores = scores_of(self._graph, output)
        return None if scores is None else DecisionCount(scores)

    def add(self, number: int, output: str, expected: np.ndarray, measured: np.ndarray) -> None:
        """Take in one sample of a floating-point output."""
        for join in self._joins[output]:
            parts, others = join.cut(expected), join.cut(measured)
            if parts is None or others is None:
                continue
            sums = self._sums.get((output, join))
            if sums is None:
                sums = self._sums[output, join] = [self._new(output, join, stretch) for stretch in join.stretches]
            for total, one, other in zip(sums, parts, others, strict=True):
                total.add(number, one, other)

    def _new(self, output: str, join: Join, stretch: tuple[int, int]) -> ResultSums:
        scores = scores_of(self._graph, output, (join.axis, *stretch))
        return ResultSums(None if scores is None else DecisionCount(scores))

    def checks(self, output: str) -> Iterator[ResultCheck]:
        """Parts that are evaluated by themselves: those of unlike ones, and any that has fallen silent."""
        shown: dict[str, ResultSums] = {}
        apart = evaluated_parts(self._joins[output], lambda join: self._powers(output, join))
        if apart is not None:
            whole, told = apart
            inside = next(join for join in self._joins[output] if join.axis == whole.axis)
            for index in told:
                start, end = whole.stretches[index]
                parts = zip(inside.stretches, self._sums[output, inside], strict=True)
                own = [sums for (first, last), sums in parts if start <= first and last <= end]
                shown[whole.labels(output)[index]] = ResultSums.together(own)
        for join in self._joins[output]:
            for label, sums in zip(join.labels(output), self._sums.get((output, join), ()), strict=False):
                if sums.total.silent:
                    shown.setdefault(label, sums)
        for label, sums in shown.items():
            yield sums.check(label, output)

    def without_signal(self, output: str) -> list[str]:
        """Parts that are 0 in every sample of the float model, beside others that are not."""
        found = []
        for join in self._joins[output]:
            powers = self._powers(output, join)
            if any(powers):
                found += [label for label, power in zip(join.labels(output), powers, strict=True) if power == 0]
        return found

    def _powers(self, output: str, join: Join) -> Sequence[float]:
        return [sums.total.power for sums in self._sums.get((output, join), ())]
