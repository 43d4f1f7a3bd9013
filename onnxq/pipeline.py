"""The whole flow as one function: model in, checked files out."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx

from onnxq.backends import get_backend
from onnxq.calibrate import calibrate
from onnxq.config import Config, read_config
from onnxq.emit import Emitted, emit
from onnxq.emit.saturation import with_seven_bit_weights, with_unsigned_weights
from onnxq.errors import CheckFailed, ConfigError, ModelError, UnsupportedError
from onnxq.files import write_json
from onnxq.graph import Graph
from onnxq.observers import make_observer
from onnxq.passes import Pass, PassReport, run_passes
from onnxq.place import place
from onnxq.report import Report, build_report
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.types import Backend, QParamsTable, QuantPlan
from onnxq.verify import FULL_OPTIMIZATION_NODES, OutputCheck, VerifyReport, sums_are_exact, verify

MODEL_NAME = "model"

KERNEL_MARGIN_DB = 6.0
"""Kernel errors this far below the error of quantization add less than a quarter to it, and are left alone."""

_SATURATES = "this processor's int8 kernels saturate on this model (it lacks VNNI), so weights"
SEVEN_BITS = f"{_SATURATES} have 7 bits, which no kernel saturates on"
UNSIGNED = f"{_SATURATES} are stored as uint8 with zero point 128: the same numbers, exact on every processor"
WAYS_OUT = ((SEVEN_BITS, with_seven_bit_weights), (UNSIGNED, with_unsigned_weights))
"""What is tried where kernels saturate, the fastest first; the first that costs no accuracy is taken."""

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

Progress = Callable[[str, int, int | None], None]
"""Called with (stage, done, total); total is None while it is unknown."""


@dataclass
class Result:
    """What `quantize` gives back: the written model, the values behind it and the report."""

    model: Path
    plan: QuantPlan
    qparams: QParamsTable
    report: Report


@dataclass
class Prepared:
    """A float graph after a backend's passes, ready to be placed, calibrated or emitted."""

    graph: Graph
    backend: Backend
    config: Config
    passes: list[PassReport] = field(default_factory=list)


class _Attempt(NamedTuple):
    """One way to write a plan, and how it turned out."""

    plan: QuantPlan
    qparams: QParamsTable
    emitted: Emitted
    checks: VerifyReport


@dataclass
class _Clock:
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def quantize(
    model: str | Path | onnx.ModelProto | Graph,
    *,
    backend: str | Backend,
    data: Any = None,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    out: str | Path | None = None,
    passes: Sequence[str | Pass] = (),
    progress: Progress | None = None,
    warnings: Sequence[str] = (),
) -> Result:
    """Quantize a model for a backend and write model.onnx, plan.json, qparams.json and report.json into `out`.

    data      calibration samples: .npz / .npy file, folder, iterable of feeds, CalibrationDataReader, "module:function"
    config    see `onnxq.config.Config`
    out       folder for the files; None makes a new temporary folder, which is the caller's to delete
    passes    the caller's own graph passes, run after the backend's
    warnings  what the caller knows about the run (random data), for the report

    The files appear only when every check of them has passed; otherwise CheckFailed is raised and `out` is untouched.
    """
    clock = _Clock()
    say = progress or (lambda stage, done, total: None)
    folder = _output_folder(out, model)
    with clock.stage("load"):
        graph = load_model(model)
        original = graph.copy()
        check_borders(graph)
        dataset = open_dataset(data, input_infos(graph), limit=read_config(config).samples)
    with clock.stage("passes"):
        say("passes", 0, None)
        prepared = prepare(graph, backend, config, passes=passes)
    with clock.stage("place"):
        plan = make_plan(prepared)
    with clock.stage("calibrate"):
        qparams, calibration, plan = run_calibration(prepared, plan, dataset, say)
    return emit_plan(
        original,
        prepared,
        plan,
        qparams,
        folder,
        dataset=dataset,
        samples=calibration.samples,
        warnings=[*warnings, *calibration.warnings],
        notes=[*dataset.notes, *calibration.notes],
        seconds=clock.seconds,
        progress=progress,
    )


def emit_plan(
    original: Graph,
    prepared: Prepared,
    plan: QuantPlan,
    qparams: QParamsTable,
    folder: Path,
    *,
    dataset: Dataset | None = None,
    samples: int = 0,
    warnings: Sequence[str] = (),
    notes: Sequence[str] = (),
    seconds: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> Result:
    """Write the files of a plan with its parameters and check them; without a dataset accuracy is not measured.

    `original` is the float model before any pass. `samples`, `warnings`, `notes` and `seconds` of earlier stages go
    into the report.
    """
    clock = _Clock(dict(seconds or {}))
    say = progress or (lambda stage, done, total: None)
    remarks = list(notes)
    if _wants_unsigned(prepared, plan, dataset):
        plan, qparams = with_unsigned_weights(plan, qparams)
        if not prepared.config.portable:
            remarks.append(f"{UNSIGNED} (the model is too large to try other ways)")
    with staging(folder) as stage:
        with clock.stage("emit"):
            say("emit", 0, None)
            emitted = emit(prepared.graph, plan, qparams, prepared.backend, stage, MODEL_NAME)
        with clock.stage("verify"):
            say("verify", 0, None)
            checks = check(original, emitted, plan, prepared, dataset, warnings)
        if _may_saturate(checks, prepared):
            attempt = _Attempt(plan, qparams, emitted, checks)
            for remark, change in WAYS_OUT:
                new_plan, new_qparams = change(plan, qparams)
                with clock.stage("emit"):
                    emitted = emit(prepared.graph, new_plan, new_qparams, prepared.backend, stage, MODEL_NAME)
                with clock.stage("verify"):
                    tried = _verified(original, emitted, new_plan, prepared, dataset)
                last = change is WAYS_OUT[-1][1]
                if _helps(tried, checks, at_all=last):
                    attempt = _Attempt(new_plan, new_qparams, emitted, tried)
                    remarks.append(remark)
                    break
            else:  # the kernels differ for another reason, so the weights stay as they were
                with clock.stage("emit"):
                    emit(prepared.graph, plan, qparams, prepared.backend, stage, MODEL_NAME)
            plan, qparams, emitted, checks = attempt
        names = [*(path.name for path in emitted.files), "plan.json", "qparams.json", "report.json"]
        report = build_report(
            backend=prepared.backend,
            config=prepared.config,
            passes=prepared.passes,
            plan=plan,
            warnings=[*warnings, *checks.warnings, *_kernel_warnings(checks, plan, prepared)],
            notes=[*remarks, *emitted.notes],
            samples=samples,
            checks=checks,
            files=[folder / name for name in names],
            seconds=clock.seconds,
        )
        write_json(stage / "plan.json", plan.to_json())
        write_json(stage / "qparams.json", qparams.to_json())
        write_json(stage / "report.json", report)
    return Result(folder / f"{MODEL_NAME}.onnx", plan, qparams, report)


def _verified(
    original: Graph, emitted: Emitted, plan: QuantPlan, prepared: Prepared, dataset: Dataset | None
) -> VerifyReport:
    return verify(
        original,
        _model_file(emitted),
        plan,
        prepared.backend,
        dataset,
        samples=prepared.config.verify_samples,
        minimum_db=prepared.config.minimum_sqnr_db,
        reference=_runnable(original),
    )


def _helps(tried: VerifyReport, before: VerifyReport, *, at_all: bool) -> bool:
    """Whether other weights make the kernels right at a price of at most 1 dB (or half a percent) in any output.

    With `at_all`, kernels that are merely better count too.
    """
    enough = before.kernel_margin_db + 1.0 if at_all else KERNEL_MARGIN_DB
    if tried.failures or tried.kernel_margin_db < enough:
        return False
    for new, old in zip(tried.outputs, before.outputs, strict=True):
        if new.sqnr_db is not None and old.sqnr_db is not None and new.sqnr_db < old.sqnr_db - 1.0:
            return False
        if new.agreement is not None and old.agreement is not None and new.agreement < old.agreement - 0.005:
            return False
    return True


def _may_saturate(checks: VerifyReport, prepared: Prepared) -> bool:
    """Whether the kernels that onnxruntime uses here lose noticeably more than the file says."""
    if not prepared.backend.runs_in_onnxruntime or prepared.config.portable:
        return False
    return checks.kernel_margin_db < KERNEL_MARGIN_DB


def _wants_unsigned(prepared: Prepared, plan: QuantPlan, dataset: Dataset | None) -> bool:
    """Whether weights are unsigned from the start: asked for, or not safe here in a file too large to be tried out."""
    if not prepared.backend.runs_in_onnxruntime:
        return False
    written = len(prepared.graph.nodes()) + sum(2 if placement.observe or placement.tie else 1 for placement in plan)
    too_large = dataset is not None and written > FULL_OPTIMIZATION_NODES
    return prepared.config.portable or (too_large and not sums_are_exact())


def _kernel_warnings(checks: VerifyReport, plan: QuantPlan, prepared: Prepared) -> list[str]:
    """What onnxruntime does not do here as the plan says: integer kernels that it did not make, or that saturate."""
    if not prepared.backend.runs_in_onnxruntime or checks.kernels is None:
        return []
    layers = [name for name in plan.quantized if prepared.graph.node(name).op in ("Conv", "Gemm", "MatMul")]
    made = sum(
        count for op, count in checks.kernels.integer.items() if any(kind in op for kind in ("Conv", "MatMul", "Gemm"))
    )
    missing = len(layers) - made
    few = [f"onnxruntime runs {missing} of {len(layers)} quantized layers in float: see kernels in the report"]
    return (few if missing > 0 else []) + [
        f"output '{check.name}': onnxruntime's fused kernels on this machine differ from what the file says by more "
        f"than the quantization does ({_kernel_difference(check)})"
        for check in checks.outputs
        if check.kernel_margin_db < 0
    ]


def _kernel_difference(check: OutputCheck) -> str:
    if check.kernel_db is not None:
        return f"{check.kernel_db:.1f} dB"
    return f"{100 * (check.kernel_agreement or 0.0):.1f} % equal values"


def _model_file(emitted: Emitted) -> Path:
    for path in emitted.files:
        if path.suffix == ".onnx":
            return path
    raise UnsupportedError("the backend's emitters write no .onnx file, so there is nothing that could be checked")


def load_model(model: str | Path | onnx.ModelProto | Graph) -> Graph:
    """A graph of one's own: changes to it do not reach the caller's object or file."""
    if isinstance(model, Graph):
        return model.copy()
    if isinstance(model, onnx.ModelProto):
        return Graph.from_model(model)
    if not isinstance(model, str | Path):
        raise ModelError(f"a model is a path, a ModelProto or a Graph, not a {type(model).__name__}")
    return Graph.load(model)


def check_borders(graph: Graph) -> None:
    """Refuse models whose inputs or outputs cannot be passed between numpy and onnxruntime."""
    for name in [*graph.input_names, *graph.output_names]:
        kind = graph.dtype(name)
        if kind is not None and kind.name == "bfloat16":
            raise UnsupportedError(
                f"'{name}' is bfloat16, which cannot be fed to or read from onnxruntime, so the model cannot be "
                "calibrated or checked. Put a Cast from and to float32 at inputs and outputs: bfloat16 inside is fine"
            )


def _runnable(original: Graph) -> Graph | None:
    """onnxruntime has no bfloat16 kernels for most operators: such a model is compared in its float32 form."""
    if not any(original.dtype(name) == BFLOAT16 for name in original.tensor_names()):
        return None
    widened = original.copy()
    run_passes(widened, ["widen_bfloat16"])
    return widened


def prepare(
    model: str | Path | onnx.ModelProto | Graph,
    backend: str | Backend,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    passes: Sequence[str | Pass] = (),
) -> Prepared:
    """Run the backend's passes, then the caller's, and infer shapes; repeating it gives the same graph."""
    graph = model if isinstance(model, Graph) else load_model(model)
    if isinstance(passes, str):
        raise ConfigError(f"passes is a list: write [{passes!r}]")
    settings = read_config(config)
    target = settings.resolve(get_backend(backend))
    for observer in (target.activation_observer, target.weight_observer):
        make_observer(observer)  # a wrong name is an error now, not after minutes of inference
    graph.infer_shapes()
    reports = run_passes(graph, [*target.passes, *passes])
    if not graph.shapes_known():
        graph.infer_shapes()
    return Prepared(graph, target, settings, reports)


def make_plan(prepared: Prepared) -> QuantPlan:
    """Place quantizers; a model in which nothing can be quantized is refused with the reasons."""
    plan = place(prepared.graph, prepared.backend, skip=prepared.config.skip)
    plan.config = prepared.config.model_dump(mode="json", exclude_defaults=True)
    if not len(plan):
        reasons = list(dict.fromkeys(plan.left_float.values()))
        shown = "; ".join(reasons[:4]) + ("; ..." if len(reasons) > 4 else "")
        raise UnsupportedError(
            f"nothing in this model can be quantized for {prepared.backend.name}: {shown or 'it has no nodes'}"
        )
    return plan


def run_calibration(
    prepared: Prepared, plan: QuantPlan, dataset: Dataset, progress: Progress | None = None
) -> tuple[QParamsTable, Any, QuantPlan]:
    """Ranges for a plan; returns the parameters, the calibration report and the plan without what no sample reached."""
    say = progress or (lambda stage, done, total: None)
    result = calibrate(prepared.graph, plan, dataset, progress=lambda done, total: say("calibrate", done, total))
    return result.qparams, result.report, result.plan


def check(
    original: Graph,
    emitted: Emitted,
    plan: QuantPlan,
    prepared: Prepared,
    dataset: Dataset | None,
    warnings: Sequence[str] = (),
) -> VerifyReport:
    """Check the written files; raises CheckFailed with every finding, and the warnings of earlier stages."""
    report = _verified(original, emitted, plan, prepared, dataset)
    if report.failures:
        lines = [*report.failures, *(f"warning: {line}" for line in (*warnings, *report.warnings))]
        if any("below the required" in line for line in report.failures):
            lines.append(
                "to look into it: write the files all the same with a lower minimum_sqnr_db (--min-sqnr) and run "
                "'onnxq compare'; other observers (percentile:99.99, mse) or --skip may help"
            )
        text = "\n  ".join(lines)
        raise CheckFailed(f"the quantized model failed its checks, so no files were written:\n  {text}")
    return report


def _output_folder(out: str | Path | None, model: Any) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="onnxq-"))
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"the output must be a folder, {folder} is a file")
    source = model.path if isinstance(model, Graph) else model
    if isinstance(source, str | Path):
        target = folder / f"{MODEL_NAME}.onnx"
        if target.exists() and os.path.exists(source) and os.path.samefile(source, target):
            raise ConfigError(f"the output would overwrite the input {source}; choose another folder with -o")
    return folder


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A hidden folder inside `folder`; its files move up when the block ends well, and vanish when it does not."""
    created = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=".onnxq-", dir=folder))
    try:
        yield stage
        for path in sorted(stage.iterdir()):
            os.replace(path, folder / path.name)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        if created and not any(folder.iterdir()):
            folder.rmdir()
        raise
    shutil.rmtree(stage, ignore_errors=True)
