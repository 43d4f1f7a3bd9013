"""The files of a plan, written into a folder and checked; weights are written in other ways where kernels saturate.

For onnxruntime as the target, the kernels of this machine are part of the checks: where they saturate, other ways to
write the weights are tried (`onnxq.pipeline.saturating_kernels`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ml_dtypes
import numpy as np

from onnxq.config import Config
from onnxq.emit import Emitted, emit
from onnxq.emit.saturation import with_fitting_weights, with_unsigned_weights
from onnxq.emit.simulate import simulate
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.half import half_kind
from onnxq.passes import run_passes
from onnxq.pipeline.explanation import DIAGNOSE, LOW_SQNR_DB, Examine, Explanation
from onnxq.pipeline.own_formats import check_own_formats
from onnxq.pipeline.rest import decide_rest, stand_in
from onnxq.pipeline.saturating_kernels import (
    UNSIGNED,
    UNTRIED_FITTING,
    WAYS_OUT,
    Attempt,
    kernel_warnings,
    may_saturate,
    wants_fitting,
    wants_unsigned,
    without_saturation,
)
from onnxq.pipeline.speed import measured_speed, speed_warnings
from onnxq.place.legal import check_plan
from onnxq.progress import Clock
from onnxq.ptq.method import Samples
from onnxq.ptq.search.sample_split import verification_samples
from onnxq.runtime.fault import own_fault, raise_own_fault
from onnxq.runtime.timing import Pace
from onnxq.session.prepare import Prepared
from onnxq.session.session import Calibrated
from onnxq.temporary import temporary_folder
from onnxq.types import QParamsTable, QuantPlan
from onnxq.types.note import folded
from onnxq.verify import (
    FULL_OPTIMIZATION_NODES,
    CheckSamples,
    ChecksFailed,
    Failure,
    FailureKind,
    FloatSide,
    OutputCheck,
    ResultCheck,
    VerifyReport,
    below_limit,
    compare_outputs,
    sums_are_exact,
    verify,
)
from onnxq.verify.pace import pace_for

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

KEPT_BYTES = 2**28
"""Outputs of the float model that are kept while a file may have to be written in another way."""

FileCheck = Callable[[Path], Sequence[str]]
"""Looks at a written model and returns what is wrong with it, a sentence each."""


@dataclass(frozen=True)
class Written:
    """The files of a plan that have passed every check.

    plan, qparams  those of the files, whose weights may be written in another way than planned
    simulated      the results as the chip computes them, where the written model cannot say it
    speed          the file against the float model, where onnxruntime is the target and there is data
    explanation    why a result is low; None where none is, or nobody has looked for it
    warnings       of the emitters and the checks
    remarks        how weights are written, where that is another way than planned
    """

    plan: QuantPlan
    qparams: QParamsTable
    emitted: Emitted
    checks: VerifyReport
    simulated: tuple[ResultCheck, ...]
    speed: Pace | None
    explanation: Explanation | None
    warnings: tuple[str, ...]
    remarks: tuple[str, ...]


class Writer:
    """Writes a calibrated model and checks what was written.

    `own_check` is one more check of the model file, whose weights then keep their numbers. `examine` finds out why a
    result is low. The plan is held against the limits of the target before anything is written.
    """

    def __init__(self, ready: Calibrated, own_check: FileCheck | None, examine: Examine | None) -> None:
        session, state = ready.session, ready.state
        self.prepared = prepared = replace(session.prepared, graph=state.graph)
        self.clock = Clock(dict(session.clock.seconds))
        self._session, self._warnings = session, ready.warnings
        self._own_check, self._examine = own_check, examine
        dataset, config = session.dataset, prepared.config
        self._samples = None if dataset is None else verification_samples(dataset, config.verify_samples)
        self._compared = _check_samples(prepared.graph, self._samples)
        again = prepared.backend.runs_in_onnxruntime and not sums_are_exact()  # then other files may follow
        original = _runnable(session.original) or session.original
        self._float_side = FloatSide(original, keep=KEPT_BYTES if again else 0)
        # How far a trained model is from its own weights in float says little, unless the user asked for it.
        asked = own_check is None or "minimum_sqnr_db" in config.model_fields_set
        self._minimum = config.minimum_sqnr_db if asked else None
        self._plan, self._qparams = state.plan, state.qparams
        self._remarks: list[str] = []
        if wants_unsigned(prepared, self._plan, measured=dataset is not None):
            self._plan, self._qparams = with_unsigned_weights(prepared.graph, self._plan, self._qparams)
            if not config.portable:
                self._remarks.append(f"{UNSIGNED} (the model is too large to try other ways)")
        elif wants_fitting(prepared):
            self._plan, self._qparams = with_fitting_weights(prepared.graph, self._plan, self._qparams)
            self._remarks.append(UNTRIED_FITTING)
        check_plan(self._plan, prepared.backend)
        check_own_formats(self._plan)
        if prepared.backend.rest is not None:
            self._plan, self._qparams, said = decide_rest(prepared, self._plan, self._qparams, dataset)
            self._remarks += said

    def write(self, stage: Path) -> Written:
        """Write the files into a folder that vanishes if this fails."""
        try:
            return self._written(self._attempted(stage), stage)
        finally:
            self._float_side.close()

    def _written(self, found: Attempt, stage: Path) -> Written:
        """What there is to know of files that have passed their checks."""
        prepared = self.prepared
        plan, qparams, emitted, checks = found
        with self.clock.stage("simulate"):
            simulated = _simulated(self._session.original, prepared, plan, qparams, self._samples, stage)
        on_the_chip = tuple(result for check in simulated for result in check.results)
        surely = limit_is_ours(prepared.config)
        lost = tuple(below_limit(on_the_chip, self._minimum, " on the chip, as simulated", surely=surely))
        fail_on(replace(checks, failures=lost), self._warnings, self._examine)
        with self.clock.stage("speed"):
            speed = self._speed(emitted, checks)
        return Written(
            plan,
            qparams,
            emitted,
            replace(checks, session=None),
            simulated=on_the_chip,
            speed=speed,
            explanation=self._explained((*checks.results, *on_the_chip)),
            warnings=(
                *emitted.warnings,
                *checks.warnings,
                *kernel_warnings(checks, plan, prepared),
                *speed_warnings(speed, checks.kernels, tuned=prepared.tuning is not None),
            ),
            remarks=tuple(self._remarks),
        )

    def _speed(self, emitted: Emitted, checks: VerifyReport) -> Pace | None:
        """How fast the file is; not asked of one that is too large for onnxruntime's optimizer."""
        backend = self.prepared.backend
        if checks.kernels is None and checks.nodes > FULL_OPTIMIZATION_NODES:
            if backend.runs_in_onnxruntime and self._samples is not None:
                self._remarks.append(
                    f"the speed of the file was not measured: it has {checks.nodes:,} nodes, and the time of "
                    "onnxruntime's optimizer grows with their square"
                )
            return None
        # Runs are counted in processor time. On a busy machine the time on the wall is many times as long.
        seconds = min(sum(self.clock.seconds.values()), time.process_time())
        file, original, side = _model_file(emitted), self._session.original, self._float_side
        return measured_speed(original, file, backend, self._samples, seconds, side, checks.session)

    def _attempted(self, stage: Path) -> Attempt:
        """The files with the first way to write weights that kernels do not saturate on."""

        def emitted_with(plan: QuantPlan, qparams: QParamsTable) -> Emitted:
            self._session.progress("emit", 0, None)
            with self.clock.stage("emit"):
                return emit(prepared.graph, plan, qparams, prepared.backend, stage, prepared.config.name)

        prepared = self.prepared
        emitted = emitted_with(self._plan, self._qparams)
        checks = self._checked(emitted, self._plan, self._qparams)
        if checks.refusal is not None:
            raise_own_fault(checks.refusal, self._float_side.graph, self._session.dataset)
        fail_on(checks, self._warnings, self._examine)
        first = Attempt(self._plan, self._qparams, emitted, checks)
        if not may_saturate(checks, prepared):
            return first
        ways = WAYS_OUT if self._own_check is None else WAYS_OUT[1:]  # trained weights keep their numbers
        found, remarks = without_saturation(prepared.graph, first, ways, emitted_with, self._checked)
        self._remarks += remarks
        return found

    def _checked(self, emitted: Emitted, plan: QuantPlan, qparams: QParamsTable) -> VerifyReport:
        self._session.progress("verify", 0, None)
        with self.clock.stage("verify"):
            with stand_in(self.prepared.graph, plan, qparams, self.prepared.backend) as rounded:
                checks = verify(
                    self._session.original,
                    _model_file(emitted),
                    plan,
                    self.prepared.backend,
                    self._compared,
                    minimum_db=self._minimum,
                    reference=self._float_side,
                    surely=limit_is_ours(self.prepared.config),
                    rounded=rounded,
                    runs=plan.rest is None or half_kind(plan.rest.dtype).runs,
                )
            if self._own_check is None or not checks.passed:
                return checks
            found = self._own_check(_model_file(emitted))
            return replace(checks, failures=tuple(Failure(FailureKind.OTHER, text) for text in found))

    def _explained(self, results: Sequence[ResultCheck]) -> Explanation | None:
        """Why a result is low, for a run whose checks have passed: who stops the search still gets the files."""
        low = any(result.silent or result.sqnr_db < LOW_SQNR_DB for result in results)
        if not low or self._examine is None:
            return None
        with self.clock.stage("diagnose"):
            try:
                return self._examine(results, failed=False)
            except KeyboardInterrupt as stop:
                if type(stop) is not KeyboardInterrupt:
                    raise  # a process that is told to end
                said = f"the diagnosis was interrupted, the files are complete; for the cause: {DIAGNOSE}"
                return Explanation((said,), None)


def _simulated(
    original: Graph,
    prepared: Prepared,
    plan: QuantPlan,
    qparams: QParamsTable,
    samples: Samples | None,
    stage: Path,
) -> tuple[OutputCheck, ...]:
    """The outputs as the chip computes them, where the written model cannot say it; empty where it does."""
    backend = prepared.backend
    other_rounding = any(placement.spec.rounding != "half_even" for placement in plan)
    if samples is None or not (backend.simulations or (backend.rounding_in_files == "half_even" and other_rounding)):
        return ()
    graph, changes = simulate(prepared.graph, plan, qparams, backend)
    if not changes and not other_rounding:
        return ()  # no operator is one that the chip computes in its own way
    with temporary_folder(inside=stage) as folder:
        path = folder / "simulated.onnx"
        return check_simulated(graph, original, path, samples)


def check_simulated(graph: Graph, original: Graph, path: Path, samples: Samples | None) -> tuple[OutputCheck, ...]:
    """Save a simulated model; it must load in onnxruntime, and with data its outputs are compared with the float model.

    `path` lies in a folder that vanishes when this fails.
    """
    graph.save(path)
    reference = _runnable(original) or original
    with own_fault(reference, samples):
        return compare_outputs(reference, path, _check_samples(graph, samples))


def _check_samples(graph: Graph, samples: Samples | None) -> CheckSamples | None:
    """What outputs are compared on, for a graph with known shapes."""
    if samples is None:
        return None
    pace = pace_for(graph, samples.dataset.first_shapes() or {}, len(samples))
    return CheckSamples(samples, len(samples), samples.numbers, pace)


def fail_on(report: VerifyReport, warnings: Sequence[str], examine: Examine | None = None) -> None:
    """Raise ChecksFailed if a check has failed, with every finding and the warnings of earlier stages.

    Where accuracy is what fails, `examine` is asked for the cause and the remedy.
    """
    if not report.failures:
        return
    lines = [*map(str, report.failures), *(f"warning: {line}" for line in folded([*warnings, *report.warnings]))]
    kinds = {failure.kind for failure in report.failures}
    if kinds & {FailureKind.LOW, FailureKind.SILENT}:
        limit = "a minimum_sqnr_db below 0" if FailureKind.SILENT in kinds else "a lower minimum_sqnr_db"
        found = None if examine is None else examine(report.results, failed=True)
        lines += [f"for the cause: {DIAGNOSE}"] if found is None else found.lines
        if found is not None and found.remedy is not None:
            lines.append(f"for a configuration with what pays: {DIAGNOSE} and --apply FILE")
        lines.append(f"to have the files all the same: {limit} (--min-sqnr)")
    text = "\n  ".join(lines)
    raise ChecksFailed(
        f"the quantized model failed its checks, so no files were written:\n  {text}", report.failures, report.results
    )


def limit_is_ours(config: Config) -> bool:
    """Whether nobody has set a limit: the one that stands in for it must not be kept by luck."""
    return "minimum_sqnr_db" not in config.model_fields_set


def _runnable(original: Graph) -> Graph | None:
    """onnxruntime has no bfloat16 kernels for most operators: such a model is compared in its float32 form."""
    if not any(original.dtype(name) == _BFLOAT16 for name in original.tensor_names()):
        return None
    widened = original.copy()
    run_passes(widened, ["widen_bfloat16"])
    return widened


def _model_file(emitted: Emitted) -> Path:
    for path in emitted.files:
        if path.suffix == ".onnx":
            return path
    raise UnsupportedError("the backend's emitters write no .onnx file, so there is nothing that could be checked")
