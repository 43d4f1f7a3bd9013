"""verify: is the emitted file valid, loadable, with the same inputs and outputs, within the limits, and accurate?"""

from __future__ import annotations

import time
from collections.abc import Iterable
from math import prod
from pathlib import Path

from onnxq.errors import CheckFailed, MachineError, OnnxqError
from onnxq.graph import Graph, collector_paused
from onnxq.lint.limits import lint
from onnxq.lint.quantizers import has_quantizers
from onnxq.runtime.feeds import Feed, shape_text
from onnxq.types import Backend, QuantPlan
from onnxq.types.note import Note
from onnxq.verify.branches import Branches
from onnxq.verify.check_samples import CheckSamples, check_samples
from onnxq.verify.checker import check_file
from onnxq.verify.comparison import Comparison, below_limit
from onnxq.verify.float_side import FloatSide
from onnxq.verify.kernels import fused_session
from onnxq.verify.report import Failure, FailureKind, OutputCheck, VerifyReport
from onnxq.verify.roots import folded_session, load_session
from onnxq.verify.selections import selections_of

_LARGE = 2**28
"""Bytes of weights."""
AS_STORED = {"session.disable_prepacking": "1"}
"""A large file that is loaded and not run: kernels copy no weights into an order of their own, which would take as much
memory as all of them together."""

FULL_OPTIMIZATION_NODES = 3000
"""Larger models are loaded without onnxruntime's optimizer, whose time grows faster than the model."""


@collector_paused()
def verify(
    float_model: Path | str | Graph,
    model_path: Path | str,
    plan: QuantPlan,
    backend: Backend,
    dataset: CheckSamples | Iterable[Feed] | None,
    *,
    minimum_db: float | None = None,
    reference: Graph | FloatSide | None = None,
    surely: bool = False,
    rounded: Path | None = None,
    runs: bool = True,
) -> VerifyReport:
    """Check an emitted file against the float model it came from; never raises for what it finds wrong with the file.

    What the machine lacks for the checks is a MachineError.

    The outputs of both are compared on samples of the dataset (the first 8, unless it says which), the quantized file
    node by node as it is written: `kernel_margin_db` of the report says what this processor makes of it. `minimum_db`
    makes a lower SQNR of any float output, or of a part of one, a failure, and so a silent one, unless it is below 0;
    `surely` asks for a standard error more (`below_limit`).
    `reference` stands in for a float model that onnxruntime cannot run; as a FloatSide it serves several files that are
    checked one after the other on the same samples. `rounded` is a file in float32 that computes what a file with
    half precision says: onnxruntime does not round between kernels that it lacks. It stands for the nodes as they are
    written, the file itself for the kernels, unless it has types that onnxruntime does not run (`runs`).
    """
    started, path, samples = time.monotonic(), Path(model_path), check_samples(dataset)
    threads = samples.pace.threads
    original = float_model if isinstance(float_model, Graph) else Graph.load(float_model)
    checked = check_file(path, original)
    failures = [Failure(FailureKind.INVALID, f"the ONNX checker refuses the file: {text}") for text in checked.refusals]
    side = reference if isinstance(reference, FloatSide) else FloatSide(original if reference is None else reference)
    compared = side.graph
    try:
        quantized = Graph.load(path)
        nodes = len(quantized.nodes())
        if dataset is not None and rounded is None and _casts(quantized) <= _casts(original):
            weights = sum(prod(constant.shape) for constant in quantized.constants())
            session = folded_session(path, threads=threads, nodes=nodes, weights=weights)
        else:  # rounding by Casts there and back is what onnxruntime's optimizer takes for nothing
            config = AS_STORED if dataset is None and _is_large(quantized) else None
            session = load_session(
                path if rounded is None else rounded, threads=threads, optimize="none", config=config
            )
        if rounded is not None and runs:
            load_session(path, threads=threads, optimize="none")
    except MachineError:
        raise
    except OnnxqError as error:
        return VerifyReport(0, time.monotonic() - started, failures=(*failures, _invalid(error)), refusal=error)
    fused, kernels, warnings = None, None, []
    if dataset is not None and nodes <= FULL_OPTIMIZATION_NODES:
        try:
            fused, kernels = fused_session(path if runs or rounded is None else rounded, threads=threads)
        except MachineError:
            raise
        except OnnxqError as error:
            if backend.runs_in_onnxruntime:
                failures.append(_invalid(error))
            else:
                text = (
                    f"onnxruntime's optimizer refuses the file, which {backend.name} does not use: to run the file in "
                    "onnxruntime, set graph_optimization_level to ORT_ENABLE_BASIC or ORT_DISABLE_ALL"
                )
                warnings.append(Note("optimizer_refuses", text))
    changes = _io_changes(original, quantized)
    failures += [Failure(FailureKind.MODEL_IO, change) for change in changes]
    findings = tuple(lint(quantized, backend))
    failures += [Failure(FailureKind.LIMITS, str(finding)) for finding in findings]
    written = [placement for placement in plan.active if placement.spec.format.in_onnx]  # others are float operators
    if written and "qdq" in backend.emitters and not has_quantizers(quantized):
        failures.append(
            Failure(
                FailureKind.NOT_QUANTIZED,
                f"the plan quantizes {len(written)} tensors, but the file has no QuantizeLinear or DequantizeLinear",
            )
        )

    comparison, branches = Comparison(side), Branches(compared, quantized)
    selections = None
    if dataset is not None and {*original.output_names} <= {*quantized.output_names}:
        selections = selections_of(compared, quantized, fused=fused is not None, threads=threads)
        comparison.run(session, fused, samples, branches, selections)
    outputs = tuple(comparison.outputs())
    failures += comparison.failures()
    failures += below_limit((result for check in outputs for result in check.results), minimum_db, surely=surely)
    return VerifyReport(
        samples=comparison.samples,
        seconds=time.monotonic() - started,
        outputs=outputs,
        findings=findings,
        failures=tuple(failures),
        warnings=(
            *warnings,
            *_fixed_defaults(original, quantized),
            *comparison.warnings(),
            *branches.warnings(),
            *(() if selections is None else selections.warnings()),
        ),
        kernels=kernels,
        nodes=nodes,
        refusal=comparison.refusal,
        notes=(*checked.inherited, *comparison.notes()),
        selections=() if selections is None else tuple(selections.checks()),
        session=fused if threads == 1 and runs and backend.runs_in_onnxruntime else None,
    )


def compare_outputs(
    float_model: Graph, model_path: Path, dataset: CheckSamples | Iterable[Feed] | None
) -> tuple[OutputCheck, ...]:
    """The outputs of a file against those of a float model, on samples of a dataset.

    A file that is not valid, or gives NaN where the float model has numbers, raises CheckFailed; one that onnxruntime
    does not load or run, its error.
    """
    problems = list(check_file(model_path, float_model).refusals)
    samples = check_samples(dataset)
    session = load_session(model_path, threads=samples.pace.threads, optimize="none")
    comparison = Comparison(FloatSide(float_model))
    if dataset is not None and not problems:
        selections = selections_of(float_model, Graph.load(model_path), fused=False, threads=samples.pace.threads)
        comparison.run(session, None, samples, selections=selections)
        if comparison.refusal is not None:
            raise comparison.refusal
        problems += map(str, comparison.failures())
    if problems:
        raise CheckFailed("; ".join(problems))
    return tuple(comparison.outputs())


def _is_large(graph: Graph) -> bool:
    sizes = (prod(one.shape) * (one.dtype.itemsize if one.dtype else 1) for one in graph.constants())
    return bool(sum(sizes) >= _LARGE)


def _casts(graph: Graph) -> int:
    return sum(node.op == "Cast" for node in graph.nodes())


def _invalid(error: OnnxqError) -> Failure:
    return Failure(FailureKind.INVALID, str(error))


def _io_changes(original: Graph, quantized: Graph) -> list[str]:
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
