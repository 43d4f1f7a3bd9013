"""verify: is the emitted file valid, loadable, unchanged at its borders, within its target's limits, and accurate?"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq.errors import CheckFailed, MachineError, OnnxqError
from onnxq.graph import Graph, collector_paused
from onnxq.graph.joined import Join, joins, unlike
from onnxq.numerics import SqnrAccumulator
from onnxq.runtime.feeds import Feed, shape_text
from onnxq.runtime.session import float_session, run_session
from onnxq.types import Backend, QuantPlan
from onnxq.types.applied import applied
from onnxq.verify.branches import Branches
from onnxq.verify.checker import check_file
from onnxq.verify.kernels import fused_session
from onnxq.verify.lint import lint
from onnxq.verify.quantizers import has_quantizers
from onnxq.verify.report import OutputCheck, VerifyReport
from onnxq.verify.roots import load_session

if TYPE_CHECKING:
    import onnxruntime as ort

FULL_OPTIMIZATION_NODES = 3000
"""Larger models are loaded without onnxruntime's optimizer, whose time grows faster than the model."""

OPTIMIZER_REFUSES = "onnxruntime's optimizer refuses the file"
"""How the warning begins that a file loads with fewer optimizations alone."""


def verify(
    float_model: Path | str | Graph,
    model_path: Path | str,
    plan: QuantPlan,
    backend: Backend,
    dataset: Iterable[Feed] | None,
    *,
    samples: int = 8,
    minimum_db: float | None = None,
    reference: Graph | None = None,
) -> VerifyReport:
    """Check an emitted file against the float model it came from; never raises for what it finds wrong with the file.

    What the machine lacks for the checks is a MachineError.

    The outputs of both are compared on the first `samples` feeds (none without a dataset), the quantized file node by
    node as it is written: `kernel_margin_db` of the report says what this processor makes of it. `minimum_db` makes a
    lower SQNR of any float output a failure. `reference` stands in for a float model that onnxruntime cannot run.
    """
    with collector_paused():
        return _verify(float_model, Path(model_path), plan, backend, dataset, samples, minimum_db, reference)


def _verify(
    float_model: Path | str | Graph,
    path: Path,
    plan: QuantPlan,
    backend: Backend,
    dataset: Iterable[Feed] | None,
    samples: int,
    minimum_db: float | None,
    reference: Graph | None,
) -> VerifyReport:
    started = time.monotonic()
    original = float_model if isinstance(float_model, Graph) else Graph.load(float_model)
    checked = check_file(path, original)
    failures = [f"the ONNX checker refuses the file: {text}" for text in checked.refusals]
    try:
        quantized = Graph.load(path)
        session = load_session(path, optimize="none")
    except MachineError:
        raise
    except OnnxqError as error:
        return VerifyReport(0, time.monotonic() - started, failures=(*failures, str(error)), refusal=error)
    fused, kernels, warnings = None, None, []
    if dataset is not None and len(quantized.nodes()) <= FULL_OPTIMIZATION_NODES:
        try:
            fused, kernels = fused_session(path)
        except MachineError:
            raise
        except OnnxqError as error:
            if backend.runs_in_onnxruntime:
                failures.append(str(error))
            else:
                warnings.append(
                    f"{OPTIMIZER_REFUSES}, which {backend.name} does not use: to run the file in "
                    "onnxruntime, set graph_optimization_level to ORT_ENABLE_BASIC or ORT_DISABLE_ALL"
                )
    failures += _border_changes(original, quantized)
    findings = tuple(lint(quantized, backend))
    failures += [str(finding) for finding in findings]
    # fp16 and bf16 are written as Casts, bfp16 as float operators.
    written = [placement for placement in applied(plan) if placement.spec.has_scale]
    if written and "qdq" in backend.emitters and not has_quantizers(quantized):
        failures.append(
            f"the plan quantizes {len(written)} tensors, but the file has no QuantizeLinear or DequantizeLinear"
        )

    compared = original if reference is None else reference
    comparison, branches = _Comparison(compared), Branches(compared, quantized)
    if dataset is not None and not any("output" in failure and "is missing" in failure for failure in failures):
        comparison.run(session, fused, dataset, samples, branches)
    failures += comparison.failures(minimum_db)
    return VerifyReport(
        samples=comparison.samples,
        seconds=time.monotonic() - started,
        outputs=tuple(comparison.outputs()),
        findings=findings,
        failures=tuple(failures),
        warnings=(*warnings, *_fixed_defaults(original, quantized), *comparison.warnings(), *branches.warnings()),
        kernels=kernels,
        refusal=comparison.refusal,
        notes=checked.inherited,
    )


def compare_outputs(
    float_model: Graph, model_path: Path, dataset: Iterable[Feed] | None, *, samples: int = 8
) -> tuple[OutputCheck, ...]:
    """The outputs of a file against those of a float model, on the first `samples` feeds (none without a dataset).

    A file that is not valid, or gives NaN where the float model has numbers, raises CheckFailed; one that onnxruntime
    does not load or run, its error.
    """
    problems = list(check_file(model_path, float_model).refusals)
    session = load_session(model_path, optimize="none")
    comparison = _Comparison(float_model)
    if dataset is not None and not problems:
        comparison.run(session, None, dataset, samples)
        if comparison.refusal is not None:
            raise comparison.refusal
        problems += comparison.failures(None)
    if problems:
        raise CheckFailed("; ".join(problems))
    return tuple(comparison.outputs())


def _border_changes(original: Graph, quantized: Graph) -> list[str]:
    """Inputs, outputs and metadata that the file does not have as the float model has them."""
    changes = []
    for what, before, after in (
        ("input", original.input_names, quantized.input_names),
        ("output", original.output_names, quantized.output_names),
    ):
        changes += [f"{what} '{name}' is missing in the file" for name in before if name not in after]
        changes += [
            f"{what} '{name}' is new: the float model has no such {what}" for name in after if name not in before
        ]
        if sorted(before) == sorted(after) and before != after:
            changes.append(f"the {what}s come in another order: {', '.join(after)} instead of {', '.join(before)}")
        for name in [name for name in before if name in after]:
            if original.shape(name) is None and original.dtype(name) == quantized.dtype(name):
                continue  # a rank that the float file leaves open is filled in: the ONNX checker demands one
            now, then = _described(quantized, name), _described(original, name)
            if now != then:
                changes.append(f"{what} '{name}' is {now} in the file, {then} in the float model")
    metadata = quantized.metadata
    for key, value in original.metadata.items():
        if metadata.get(key) != value:
            changes.append(f"metadata '{key}' is {metadata.get(key)!r} in the file, {value!r} in the float model")
    return changes


def _fixed_defaults(original: Graph, quantized: Graph) -> list[str]:
    """Initializers that a caller of the float model may override, and a caller of the file cannot."""
    if original.header.ir_version < _OVERRIDING_IR:
        return []
    left = quantized.gs.overridable
    fixed = [
        name
        for name in original.gs.overridable
        if name not in left or (original.consumers(name) and not quantized.consumers(name))
    ]
    if not fixed:
        return []
    shown = ", ".join(f"'{name}'" for name in fixed[:_SHOWN]) + (", ..." if len(fixed) > _SHOWN else "")
    inputs = "an input with a default value" if len(fixed) == 1 else "inputs with default values"
    return [
        f"{shown}: {inputs} in the float model, constant in the file, which was quantized with the default: it cannot "
        "be set any more. Export the model without initializers as inputs, or feed it as an input without a default"
    ]


_OVERRIDING_IR = 4
"""The IR version from which an initializer that is listed as an input may be overridden; before, all had to be."""

_SHOWN = 5


def _described(graph: Graph, name: str) -> str:
    dtype, shape = graph.dtype(name), graph.written_shape(name)
    return f"{'untyped' if dtype is None else dtype.name} {'of unknown rank' if shape is None else shape_text(shape)}"


class _Comparison:
    """Outputs of the float and the quantized model on the same feeds, summed up."""

    def __init__(self, original: Graph) -> None:
        self._original = original
        self._names = original.output_names
        self._sums: dict[str, SqnrAccumulator] = {}
        self._joins = joins(original)
        self._parts: dict[tuple[str, Join], list[SqnrAccumulator]] = {}
        self._equal: dict[str, list[int]] = {}
        self._reshaped: dict[str, int] = {}
        self._broken: dict[str, str] = {}
        self._skipped: dict[str, str] = {}
        self.refusal: OnnxqError | None = None
        self._kernels: dict[str, SqnrAccumulator] = {}
        self._kernels_equal: dict[str, list[int]] = {}
        self.samples = 0

    def run(
        self,
        session: ort.InferenceSession,
        fused: ort.InferenceSession | None,
        dataset: Iterable[Feed],
        samples: int,
        branches: Branches | None = None,
    ) -> None:
        # Without the optimizer, whose fusions are not all right: the model's own meaning is what counts.
        reference = float_session(self._original, optimize="none")
        for number, feed in enumerate(islice(dataset, samples)):
            where = f"sample {number}"
            expected = run_session(reference, self._names, feed, where)
            try:
                measured = run_session(session, self._names, feed, where)
                if fused is not None:
                    self._add_kernels(measured, run_session(fused, self._names, feed, where))
            except MachineError:
                raise
            except OnnxqError as error:
                self.refusal = error
                return
            for name, one, other in zip(self._names, expected, measured, strict=True):
                self._add(name, one, other, where)
            if branches is not None:
                branches.add(feed, where)
            self.samples += 1

    def _add_kernels(self, exact: list[Any], fused: list[Any]) -> None:
        for name, one, other in zip(self._names, exact, fused, strict=True):
            if not isinstance(one, np.ndarray):
                continue
            if one.shape != other.shape or not _is_float(one):  # another shape has no value in common
                counts = self._kernels_equal.setdefault(name, [0, 0])
                counts[0] += int(np.count_nonzero(one == other)) if one.shape == other.shape else 0
                counts[1] += max(one.size, 1)
            else:
                self._kernels.setdefault(name, SqnrAccumulator()).add(one, other)

    def _add(self, name: str, expected: Any, measured: Any, where: str) -> None:
        if not isinstance(expected, np.ndarray) or not isinstance(measured, np.ndarray):
            self._skipped[name] = "it is not a tensor"
        elif expected.shape != measured.shape:
            self._reshaped[name] = self._reshaped.get(name, 0) + 1
        elif _is_float(expected):
            self._sums.setdefault(name, SqnrAccumulator()).add(expected, measured)
            self._add_parts(name, expected, measured)
            bad = ~np.isfinite(measured.astype(np.float32)) & np.isfinite(expected.astype(np.float32))
            if bad.any():
                self._broken.setdefault(
                    name, f"{int(bad.sum())} NaN/inf values in {where} where the float model has numbers"
                )
        else:
            counts = self._equal.setdefault(name, [0, 0])
            counts[0] += int(np.count_nonzero(expected == measured))
            counts[1] += expected.size

    def _add_parts(self, name: str, expected: np.ndarray, measured: np.ndarray) -> None:
        for join in self._joins[name]:
            pairs = zip(join.cut(expected) or (), join.cut(measured) or (), strict=True)
            totals = self._parts.setdefault((name, join), [SqnrAccumulator() for _ in join.ends])
            for total, (one, other) in zip(totals, pairs, strict=False):
                total.add(one, other)

    def _of_parts(self, name: str) -> dict[str, float]:
        """SQNR of the parts of an output of which some are far larger than others."""
        for join in self._joins[name]:
            totals = self._parts.get((name, join), [])
            if shown := unlike([total.power for total in totals]):
                labels = join.labels(name)
                return {labels[index]: totals[index].value for index in shown}
        return {}

    def outputs(self) -> Iterator[OutputCheck]:
        for name in self._names:
            reshaped = self._reshaped.get(name, 0)
            if name in self._sums:
                total = self._sums[name]
                yield OutputCheck(
                    name,
                    total.value,
                    total.cosine,
                    total.max_abs_error,
                    compared=total.compared,
                    reshaped=reshaped,
                    kernel_db=self._kernels[name].value if name in self._kernels else None,
                    parts_db=self._of_parts(name),
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

    def failures(self, minimum_db: float | None) -> Iterator[str]:
        if self.refusal is not None:
            yield f"the quantized file does not run: {self.refusal}"
        for name, what in self._broken.items():
            yield f"output '{name}': {what}"
        for name, total in self._sums.items():
            if minimum_db is not None and total.value < minimum_db:
                yield f"output '{name}': SQNR {total.value:.1f} dB is below the required {minimum_db:g} dB"

    def warnings(self) -> Iterator[str]:
        for name, count in self._reshaped.items():
            yield (
                f"output '{name}' has another shape than in the float model in {count} of {self.samples} samples: not "
                "compared there"
            )
        for name, total in self._sums.items():
            if total.mismatched:
                yield f"output '{name}': {total.mismatched} values are NaN, infinite or masked in the float model only"
        for name, why in self._skipped.items():
            yield f"output '{name}' was not compared: {why}"


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name in ("bfloat16",)
