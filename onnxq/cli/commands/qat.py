"""`onnxq qat`: a float model trained with its quantizers, then written and checked as by `onnxq quantize`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from warnings import catch_warnings, simplefilter

import typer

from onnxq.cli import options
from onnxq.cli.console import print_error, print_pairs, say
from onnxq.cli.progress import training_bar
from onnxq.config.assignments import Assignment
from onnxq.errors import ConfigError, OnnxqWarning
from onnxq.json_file import JsonMapping

TrainOption = Annotated[
    str,
    typer.Option(
        "--train",
        help="Data to train on: .npz file with an array for each input and 'labels', module:function, or "
        "file.py:function. Without labels the float model is the teacher.",
    ),
]
EvalOption = Annotated[
    str | None, typer.Option("--eval", help="Data to evaluate on; else a part of the training data is kept apart.")
]
HoldoutOption = Annotated[
    float, typer.Option("--holdout", help="Fraction of the training data to evaluate on.", metavar="FRACTION")
]
LabelsOption = Annotated[str | None, typer.Option("--labels", help="Name of the labels in the data.", metavar="NAME")]
MetricOption = Annotated[
    str | None,
    typer.Option("--metric", help="accuracy, loss, agreement, sqnr_db, or module:function(outputs, labels)."),
]
FakeQuantizerOption = Annotated[
    str | None, typer.Option("--fake-quantizer", help="How activations are trained, such as lsq.", metavar="NAME")
]
WeightFakeQuantizerOption = Annotated[
    str | None, typer.Option("--weight-fake-quantizer", help="How weights are trained, such as lsq.", metavar="NAME")
]
BitsOption = Annotated[
    str | None, typer.Option("--bits", help="Bits of weights and activations, such as w4a4.", metavar="WxAy")
]
BatchNormsOption = Annotated[
    str | None,
    typer.Option(
        "--batch-norms",
        help="folded before training (by default); frozen or live: apart, with fixed or learnt statistics.",
    ),
]
LastOption = Annotated[
    bool, typer.Option("--last", help="Write the last parameters instead of those of the best evaluation.")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="Folder of checkpoints; OUT/checkpoints by default.", metavar="FOLDER"),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint, if there is one.")]

TORCH_MISSING = "training needs torch, which cannot be imported ({error}): pip install torch"


@options.with_settings(
    "target evaluate holdout labels metric data images config foreign code ranges fake_quantizer weight_fake_quantizer "
    "bits place samples batch_norms training last checkpoint checkpoints resume verify report"
)
def qat(
    model: options.ModelArgument,
    out: options.FolderOption,
    train: TrainOption,
    given: options.Given,
    evaluate: EvalOption = None,
    holdout: HoldoutOption = 0.1,
    labels: LabelsOption = None,
    metric: MetricOption = None,
    fake_quantizer: FakeQuantizerOption = None,
    weight_fake_quantizer: WeightFakeQuantizerOption = None,
    bits: BitsOption = None,
    batch_norms: BatchNormsOption = None,
    last: LastOption = False,
    checkpoint: CheckpointOption = None,
    resume: ResumeOption = False,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    strict: options.StrictOption = False,
    mlflow: options.MlflowOption = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Train MODEL with its quantizers for a target and write the checked files into a folder.

    A run that was cut off goes on with --resume and ends with the same result. Under torchrun the processes train on
    a part of each batch, and the first one writes the files.
    """
    from onnxq.cli.artifacts import check_writable
    from onnxq.cli.settings import load_plugins, read_settings
    from onnxq.cli.summary import fail_on_warnings, show_report
    from onnxq.config.training import train_settings
    from onnxq.distributed import in_step, torchrun_ranks
    from onnxq.graph import Graph
    from onnxq.integrations.mlflow import log_run, open_store

    try:
        from onnxq.qat.flow import qat as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise ConfigError(TORCH_MISSING.format(error=error)) from error

    if mlflow:
        open_store()
    with torchrun_ranks(print_error) as ranks:
        silent = quiet or not (ranks is None or ranks.first)
        with in_step(ranks):
            load_plugins(plugin)
            train_settings(given.training)  # what is wrong is said before anything is read
            graph = Graph.load(model)
            shortcuts = _shortcuts(bits, fake_quantizer, weight_fake_quantizer)
            chosen = read_settings(given, graph, shortcuts=shortcuts)
            check_writable(out)
        place = checkpoint or out / "checkpoints"
        with (
            _telling_how_to_go_on(place, quiet=silent),
            training_bar("qat", quiet=silent) as (progress, of_training),
            catch_warnings(),
        ):
            simplefilter("ignore", OnnxqWarning)  # they are printed below, as those of every command
            finished = run(
                model,
                None if chosen.translation is not None else given["backend"],
                train_on=train,
                out=out,
                evaluate_on=evaluate,
                config=chosen,
                settings=given.training,
                labels=labels,
                metric=metric,
                holdout=holdout,
                batch_norms=batch_norms,  # type: ignore[arg-type]
                checkpoints=checkpoint,
                resume=resume,
                last=last,
                passes=passes or (),
                strict=strict or chosen.strict,
                progress=progress,
                training_progress=of_training,
                ranks=ranks,
            )
    if finished is None:
        return
    report = finished.result.report
    if not (as_json or quiet):
        print_pairs("training", list(_summary(report["training"])))
    show_report(report, model, finished.result.model, as_json=as_json, quiet=quiet)
    if mlflow:
        say(f"MLflow: run {log_run(out)}", quiet=quiet or as_json)
    fail_on_warnings(report, out, strict=strict or chosen.strict)


def _shortcuts(bits: str | None, activation: str | None, weight: str | None) -> list[Assignment]:
    """What --bits, --fake-quantizer and --weight-fake-quantizer say about all quantizers."""
    found = []
    if bits is not None:
        parts = re.fullmatch(r"[wW](\d+)[aA](\d+)", bits)
        if parts is None:
            raise ConfigError(f"--bits is the bits of weights and activations such as w4a8, got '{bits}'")
        found.append(Assignment(("weight", "bits"), int(parts[1]), "--bits"))
        found.append(Assignment(("activation", "bits"), int(parts[2]), "--bits"))
    if activation is not None:
        found.append(Assignment(("activation", "fake_quantizer"), activation, "--fake-quantizer"))
    if weight is not None:
        found.append(Assignment(("weight", "fake_quantizer"), weight, "--weight-fake-quantizer"))
    return found


@contextmanager
def _telling_how_to_go_on(folder: Path, *, quiet: bool) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if any(folder.glob("step-*.pt")):
            say(f"checkpoints are in {folder}: the same command with --resume goes on from there", quiet=quiet)
        raise


def _summary(training: JsonMapping) -> Iterator[tuple[str, str]]:
    name = training["metric"]

    def shown(value: float | str) -> str:
        number = float(value)
        if name == "sqnr_db":
            return f"{number:.1f} dB"
        return f"{number:.2%}" if name in ("accuracy", "agreement") else f"{number:.4g}"

    epochs = "1 epoch" if training["epochs"] == 1 else f"{training['epochs']} epochs"
    yield "steps", f"{training['steps']} in {epochs}, {training['seconds']:.1f} s"
    if training["loss"] is not None:
        yield "loss", f"{float(training['loss']['first']):.4g} -> {float(training['loss']['last']):.4g}"
    if name not in ("sqnr_db", "agreement"):  # those compare with the float model
        yield name, f"{shown(training['float'])} float"
    yield name, f"{shown(training['before'])} quantized, before training"
    yield name, f"{shown(training['after'])} after training (epoch {training['after_epoch']})"
    yield name, f"{shown(training['written'])} of the written file, in onnxruntime"
