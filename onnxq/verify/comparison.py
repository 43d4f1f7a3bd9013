"""Outputs of the float and the quantized model on the same samples, and what the limits say about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onnxq.errors import MachineError, OnnxqError
from onnxq.graph.ancestors import ancestors
from onnxq.numerics import SqnrAccumulator
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import run_session
from onnxq.runtime.workers import run_in_order
from onnxq.verify.branches import Branches
from onnxq.verify.check_samples import CheckSamples
from onnxq.verify.float_side import FloatSide
from onnxq.verify.report import Failure, FailureKind, OutputCheck, ResultCheck
from onnxq.verify.results import PartSums, ResultSums, is_float
from onnxq.verify.selections import Chosen, Selections

if TYPE_CHECKING:
    import onnxruntime as ort

    from onnxq.runtime.sections import SectionedSession


KERNEL_SAMPLES = 8
"""Samples that show what this processor's kernels make of a file: their errors are the same everywhere."""


def below_limit(
    results: Iterable[ResultCheck], minimum_db: float | None, where: str = "", *, surely: bool = False
) -> Iterator[Failure]:
    """Outputs and parts below an SQNR, or silent; None asks for nothing, and below 0 dB silence is allowed too.

    `where` is said behind the figure. With `surely`, a result has to be above the limit by one standard error: the
    figure of samples few of which carry the noise may be much worse with others.
    """
    if minimum_db is None:
        return
    for result in results:
        if result.silent and minimum_db >= 0:
            text = (
                f"{result.title} is silent{where}: it has one value everywhere, where the float model's values differ "
                f"(SQNR {result.sqnr_db:.1f} dB)"
            )
            yield Failure(FailureKind.SILENT, text, result.name, result.sqnr_db)
        elif result.sqnr_db < minimum_db:
            text = f"{result.title}: SQNR {result.sqnr_db:.1f} dB{where} is below the required {minimum_db:g} dB"
            yield Failure(FailureKind.LOW, text, result.name, result.sqnr_db)
        elif surely and result.samples is not None and result.sqnr_db - result.samples.margin_db < minimum_db:
            text = (
                f"{result.title}: SQNR {result.sqnr_db:.1f} dB{where}, less {result.samples.margin_db:.1f} dB by which "
                f"{result.samples.count} samples leave it open, is below the required {minimum_db:g} dB"
            )
            yield Failure(FailureKind.LOW, text, result.name, result.sqnr_db)


class _Outputs(NamedTuple):
    """What the models make of one sample: `exact` and `fast` are node by node and with the kernels of this processor.

    `chosen` is what the selecting nodes of both have selected.
    """

    expected: list[Any]
    measured: list[Any]
    exact: list[Any]
    fast: list[Any] | None
    chosen: Chosen | None


class Comparison:
    """Outputs of the float and the quantized model on the same feeds, summed up."""

    def __init__(self, side: FloatSide) -> None:
        self._side, self._original = side, side.graph
        self._names = self._original.output_names
        self._sums: dict[str, ResultSums] = {}
        self._parts = PartSums(side.shaped, side.joins)
        self._equal: dict[str, list[int]] = {}
        self._reshaped: dict[str, int] = {}
        self._aligned: dict[str, int] = {}
        self._ancestors: dict[str, frozenset[str]] = {}
        self._broken: dict[str, str] = {}
        self._skipped: dict[str, str] = {}
        self.refusal: OnnxqError | None = None
        self._kernels: dict[str, SqnrAccumulator] = {}
        self._kernels_equal: dict[str, list[int]] = {}
        self.samples = 0

    def run(
        self,
        session: ort.InferenceSession | SectionedSession,
        fused: ort.InferenceSession | None,
        samples: CheckSamples,
        branches: Branches | None = None,
        selections: Selections | None = None,
    ) -> None:
        """Compare on samples; with `selections`, floating-point outputs are those for what the float model selects."""
        indices = [] if selections is None else selections.indices
        names, threads = self._names, samples.pace.threads
        feeds = iter(samples)
        first = next(feeds, None)

        def where(count: int) -> str:
            return f"sample {samples.number(count)}"

        said = "" if first is None else where(0)
        others = (samples.count - 1) * samples.pace.run_bytes
        self._side.prepare(indices, threads, first=first, bytes_of_others=others, where=said)

        def run(count: int, feed: Feed) -> _Outputs | OnnxqError:
            found = self._side.outputs(indices, count, feed, where(count), threads)
            expected, selected = found[: len(names)], found[len(names) :]
            try:
                measured = exact = run_session(session, names, feed, where(count))
                chosen, fast = None, None
                if selections is not None:
                    exact, chosen = selections.run(names, feed, selected, where(count))
                    measured = [given if is_float(given) else own for given, own in zip(exact, measured, strict=True)]
                if fused is not None and count < KERNEL_SAMPLES:
                    fast = run_session(fused, names, feed, where(count))
                    if selections is not None:
                        fast = selections.run_fused(names, feed, selected, where(count))
            except MachineError:
                raise
            except OnnxqError as error:
                return error
            return _Outputs(expected, measured, exact, fast, chosen)

        def add(count: int, feed: Feed, found: _Outputs | OnnxqError) -> bool:
            if isinstance(found, OnnxqError):
                self.refusal = found
                return False
            if found.fast is not None:
                self._add_kernels(found.exact, found.fast)
            if found.chosen is not None and selections is not None:
                selections.count(found.chosen)
            astray = frozenset() if branches is None else branches.add(feed, where(count))
            number = samples.number(count)
            for name, one, other in zip(names, found.expected, found.measured, strict=True):
                self._add(name, one, other, number, astray=bool(astray) and self._is_behind(name, astray))
            self.samples += 1
            return True

        run_in_order(chain(() if first is None else (first,), feeds), run, add, samples.pace.workers)

    def _add_kernels(self, exact: list[Any], fused: list[Any]) -> None:
        for name, one, other in zip(self._names, exact, fused, strict=True):
            if not isinstance(one, np.ndarray):
                continue
            if one.shape != other.shape or not is_float(one):  # another shape has no value in common
                counts = self._kernels_equal.setdefault(name, [0, 0])
                counts[0] += int(np.count_nonzero(one == other)) if one.shape == other.shape else 0
                counts[1] += max(one.size, 1)
            else:
                self._kernels.setdefault(name, SqnrAccumulator()).add(one, other)

    def _is_behind(self, output: str, nodes: frozenset[str]) -> bool:
        """Whether an output depends on one of these nodes of the main graph."""
        if output not in self._ancestors:
            self._ancestors[output] = ancestors(self._original, output)
        return not nodes.isdisjoint(self._ancestors[output])

    def _add(self, name: str, expected: Any, measured: Any, number: int, *, astray: bool) -> None:
        """Take in one output; behind a Loop or an If that went `astray` its shape is part of what is evaluated."""
        if not isinstance(expected, np.ndarray) or not isinstance(measured, np.ndarray):
            self._skipped[name] = "it is not a tensor"
            return
        if expected.shape != measured.shape:
            self._reshaped[name] = self._reshaped.get(name, 0) + 1
            if not astray:
                return
            self._aligned[name] = self._aligned.get(name, 0) + 1
            if not is_float(expected):
                self._count_equal(name, *_in_common(expected, measured), max(expected.size, measured.size))
                return
            expected, measured = _aligned(expected, measured)
        if is_float(expected):
            if name not in self._sums:
                self._sums[name] = ResultSums(self._parts.decisions(name))
            self._sums[name].add(number, expected, measured)
            self._parts.add(number, name, expected, measured)
            bad = ~np.isfinite(measured.astype(np.float32)) & np.isfinite(expected.astype(np.float32))
            if bad.any():
                self._broken.setdefault(
                    name, f"{int(bad.sum())} NaN/inf values in sample {number} where the float model has numbers"
                )
        else:
            self._count_equal(name, expected, measured, expected.size)

    def _count_equal(self, name: str, expected: np.ndarray, measured: np.ndarray, of: int) -> None:
        counts = self._equal.setdefault(name, [0, 0])
        counts[0] += int(np.count_nonzero(expected == measured))
        counts[1] += of

    def outputs(self) -> Iterator[OutputCheck]:
        for name in self._names:
            reshaped = self._reshaped.get(name, 0)
            if name in self._sums:
                total, whole = self._sums[name].total, self._sums[name].check(name, name)
                yield OutputCheck(
                    name,
                    total.value,
                    total.cosine,
                    total.max_abs_error,
                    compared=total.compared,
                    reshaped=reshaped,
                    kernel_db=self._kernels[name].value if name in self._kernels else None,
                    silent=whole.silent,
                    samples=whole.samples,
                    decisions=whole.decisions,
                    parts=tuple(self._parts.checks(name)),
                )
            elif name in self._equal:
                equal, count = self._equal[name]
                yield OutputCheck(
                    name,
                    agreement=equal / count if count else 1.0,
                    compared=count,
                    reshaped=reshaped,
                    kernel_agreement=self._kernel_agreement(name),
                )
            elif reshaped:
                yield OutputCheck(name, reshaped=reshaped)

    def _kernel_agreement(self, name: str) -> float | None:
        equal, count = self._kernels_equal.get(name, (0, 0))
        return equal / count if count else None

    def failures(self) -> Iterator[Failure]:
        """What is wrong whatever the limits are: a file that does not run, or makes NaN of numbers."""
        if self.refusal is not None:
            yield Failure(FailureKind.INVALID, f"the quantized file does not run: {self.refusal}")
        for name, what in self._broken.items():
            yield Failure(FailureKind.NOT_FINITE, f"output '{name}': {what}", name)

    def notes(self) -> Iterator[str]:
        for name in self._sums:
            for label in self._parts.without_signal(name):
                yield (
                    f"part '{label}' is 0 in all {self.samples} samples that were compared, in the float model too: "
                    "nothing says what became of it. Give samples in which it is not"
                )

    def warnings(self) -> Iterator[str]:
        for name, count in self._reshaped.items():
            lost = self._aligned.get(name, 0)
            what = "not compared there" if lost < count else "what is missing or too much counts as noise"
            if 0 < lost < count:
                what = f"what is missing or too much counts as noise in {lost} of them, the others were not compared"
            where = f"in {count} of {self.samples} samples"
            yield f"output '{name}' has another shape than in the float model {where}: {what}"
        for name, sums in self._sums.items():
            if count := sums.total.mismatched:
                yield f"output '{name}': {count} values are NaN, infinite or masked in the float model only"
        for name, why in self._skipped.items():
            yield f"output '{name}' was not compared: {why}"


def _aligned(expected: np.ndarray, measured: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two outputs of unlike sizes in one shape: values that only one of them has stand beside zeros.

    Masks among these have no size, and count as nothing.
    """
    if expected.ndim != measured.ndim:
        return expected, np.zeros_like(expected)
    sizes = np.maximum(expected.shape, measured.shape)
    common = _common(expected, measured)

    def padded(array: np.ndarray) -> np.ndarray:
        whole = np.zeros(sizes, array.dtype)
        whole[tuple(slice(size) for size in array.shape)] = array
        inside = whole[common].copy()
        whole[~np.isfinite(whole.astype(np.float32))] = 0
        whole[common] = inside
        return whole

    return padded(expected), padded(measured)


def _in_common(expected: np.ndarray, measured: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places that two outputs of unlike sizes both have; none where they have another number of axes."""
    if expected.ndim != measured.ndim:
        return expected[:0].ravel()[:0], measured[:0].ravel()[:0]
    common = _common(expected, measured)
    return expected[common], measured[common]


def _common(expected: np.ndarray, measured: np.ndarray) -> tuple[slice, ...]:
    return tuple(slice(int(size)) for size in np.minimum(expected.shape, measured.shape))
