"""`onnxq qat`: a float model trained with its quantizers, then written and checked as by `onnxq quantize`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.cli import options, qat_options
from onnxq.cli.console import print_error, print_pairs, say
from onnxq.cli.training_bar import training_bars
from onnxq.errors import ConfigError

if TYPE_CHECKING:
    from onnxq.config import Config

TORCH_MISSING = "training needs torch, which cannot be imported ({error}): pip install 'onnxq[torch]'"


def qat(
    model: options.ModelArgument,
    out: options.FolderOption,
    train: qat_options.TrainOption,
    backend: options.BackendOption = None,
    evaluate: qat_options.EvalOption = None,
    holdout: qat_options.HoldoutOption = 0.1,
    labels: qat_options.LabelsOption = None,
    metric: qat_options.MetricOption = None,
    data: options.DataOption = None,
    preprocess: options.PreprocessOption = None,
    config: options.ConfigOption = None,
    mqbench: options.MqbenchOption = None,
    sophgo: options.SophgoOption = None,
    vitis: options.VitisOption = None,
    allow_code: options.AllowCodeOption = False,
    observer: options.ObserverOption = None,
    weight_observer: options.WeightObserverOption = None,
    fake_quantizer: qat_options.FakeQuantizerOption = None,
    weight_fake_quantizer: qat_options.WeightFakeQuantizerOption = None,
    bits: qat_options.BitsOption = None,
    skip: options.SkipOption = None,
    samples: options.SamplesOption = None,
    batch_norms: qat_options.BatchNormsOption = "folded",
    epochs: qat_options.EpochsOption = None,
    steps: qat_options.StepsOption = None,
    batch_size: qat_options.BatchSizeOption = None,
    accumulate: qat_options.AccumulateOption = None,
    lr: qat_options.LearningRateOption = None,
    scale_lr: qat_options.ScaleRateOption = None,
    optimizer: qat_options.OptimizerOption = None,
    momentum: qat_options.MomentumOption = None,
    weight_decay: qat_options.WeightDecayOption = None,
    schedule: qat_options.ScheduleOption = None,
    warmup: qat_options.WarmupOption = None,
    step_size: qat_options.StepSizeOption = None,
    gamma: qat_options.GammaOption = None,
    clip_gradient: qat_options.ClipOption = None,
    observer_freeze: qat_options.ObserverFreezeOption = None,
    batch_norm_freeze: qat_options.BatchNormFreezeOption = None,
    quantize_from: qat_options.QuantizeFromOption = None,
    distill: qat_options.DistillOption = None,
    distill_loss: qat_options.DistillLossOption = None,
    temperature: qat_options.TemperatureOption = None,
    label_loss: qat_options.LabelLossOption = None,
    label_output: qat_options.LabelOutputOption = None,
    recompute: qat_options.RecomputeOption = None,
    seed: qat_options.SeedOption = None,
    evaluate_every: qat_options.EvaluateEveryOption = None,
    best_by: qat_options.BestByOption = None,
    patience: qat_options.PatienceOption = None,
    last: qat_options.LastOption = False,
    checkpoint: qat_options.CheckpointOption = None,
    checkpoint_every: qat_options.CheckpointEveryOption = None,
    resume: qat_options.ResumeOption = False,
    min_sqnr: options.MinimumOption = None,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    strict: options.StrictOption = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Train MODEL with its quantizers for a target and write the checked files into a folder.

    A run that was cut off goes on with --resume and ends with the same result. Under torchrun the processes train on
    a part of each batch, and the first one writes the files.
    """
    given = dict(locals())  # the options by name, before anything else has one
    from onnxq.cli.artifacts import check_writable
    from onnxq.cli.settings import load_plugins, read_foreign, read_settings
    from onnxq.cli.summary import fail_on_warnings, show_report
    from onnxq.distributed import in_step, torchrun_ranks
    from onnxq.graph import Graph

    try:
        from onnxq.qat.flow import qat as run
        from onnxq.qat.settings import train_settings
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise ConfigError(TORCH_MISSING.format(error=error)) from error

    with torchrun_ranks(print_error) as ranks:
        silent = quiet or not (ranks is None or ranks.first)
        with in_step(ranks):
            load_plugins(plugin)
            settings = train_settings(_training_options(given))
            graph = Graph.load(model)
            chosen = read_settings(
                read_foreign(
                    graph,
                    config=config,
                    backend=backend,
                    mqbench=mqbench,
                    sophgo=sophgo,
                    vitis=vitis,
                    allow_code=allow_code,
                ),
                allow_code=allow_code,
                backend=backend,
                skip=skip,
                data=data,
                observer=observer,
                weight_observer=weight_observer,
                samples=samples,
                min_sqnr=min_sqnr,
                preprocess=preprocess,
            )
            chosen = _with_shortcuts(chosen, bits, fake_quantizer, weight_fake_quantizer)
            check_writable(out)
        place = checkpoint or out / "checkpoints"
        with _telling_how_to_go_on(place, quiet=silent), training_bars(quiet=silent) as (progress, of_training):
            finished = run(
                model,
                None if chosen.translation is not None else backend,
                train_on=train,
                out=out,
                evaluate_on=evaluate,
                config=chosen,
                settings=settings,
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
    fail_on_warnings(report, out, strict=strict or chosen.strict)


def _training_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that are settings of training, under the same names."""
    from dataclasses import fields

    from onnxq.qat.settings import TrainSettings

    found = {field.name: given[field.name] for field in fields(TrainSettings) if given[field.name] is not None}
    for name in ("observer_freeze", "batch_norm_freeze"):
        if name in found:
            found[name] = _moment(name, found[name])
    return found


def _moment(name: str, text: str) -> float | None:
    if text == "never":
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"--{name.replace('_', '-')} is a fraction of all steps, epochs from 1 on, or never, got '{text}'"
        ) from None


def _with_shortcuts(chosen: Config, bits: str | None, activation: str | None, weight: str | None) -> Config:
    """The configuration with what --bits, --fake-quantizer and --weight-fake-quantizer say about all quantizers."""
    from onnxq.config import read_config

    wanted: dict[tuple[str, str], tuple[Any, str]] = {}
    if bits is not None:
        found = re.fullmatch(r"[wW](\d+)[aA](\d+)", bits)
        if found is None:
            raise ConfigError(f"--bits is the bits of weights and activations such as w4a8, got '{bits}'")
        wanted["weight", "bits"] = int(found[1]), "--bits"
        wanted["activation", "bits"] = int(found[2]), "--bits"
    if activation is not None:
        wanted["activation", "fake_quantizer"] = activation, "--fake-quantizer"
    if weight is not None:
        wanted["weight", "fake_quantizer"] = weight, "--weight-fake-quantizer"
    if not wanted:
        return chosen
    tables = {part: getattr(chosen, part).model_dump(exclude_unset=True) for part in ("activation", "weight")}
    for (part, key), (value, _) in wanted.items():
        tables[part][key] = value
    changed = read_config(chosen, options=True, **{part: table for part, table in tables.items() if table})
    said: dict[tuple[str, ...], str] = {path: option for path, (_, option) in wanted.items()}
    return changed.with_sources({**changed.sources, **chosen.sources, **said}, chosen.translation)


@contextmanager
def _telling_how_to_go_on(folder: Path, *, quiet: bool) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if any(folder.glob("step-*.pt")):
            say(f"checkpoints are in {folder}: the same command with --resume goes on from there", quiet=quiet)
        raise


def _summary(training: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
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
