"""Quantization-aware training as one function: model and data in, checked files of a trained model out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxq.config import ConfigSource
from onnxq.config.training import TrainSettings, train_settings
from onnxq.distributed import Ranks, in_step
from onnxq.errors import CheckFailed, ConfigError, did_you_mean
from onnxq.files import json_number
from onnxq.glance import counted
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.output_folder import OutputFolder, claim
from onnxq.passes import Pass
from onnxq.pipeline.artifacts import Result, refuse_overwriting
from onnxq.pipeline.forecast import announce_files
from onnxq.progress import Progress
from onnxq.progress.bar import watched
from onnxq.qat.batch_norm import BatchNorms
from onnxq.qat.batches import IndexedData, TrainingData
from onnxq.qat.checkpoint import Checkpoints
from onnxq.qat.deliver import deliver
from onnxq.qat.distributed import Team
from onnxq.qat.early import refuse_early
from onnxq.qat.evaluate import LOWER_IS_BETTER, METRICS, Evaluation, default_metric
from onnxq.qat.fixed_batch import fixed_batch
from onnxq.qat.history import Training
from onnxq.qat.loop import Moment, train
from onnxq.qat.losses import fitted_to, make_loss
from onnxq.qat.moments import follow
from onnxq.qat.net import QatNet
from onnxq.qat.prepare import prepare_session, settings_for
from onnxq.qat.training_data import open_training_data
from onnxq.runtime import input_infos
from onnxq.runtime.session import make_session, run_session
from onnxq.session.prepare import Model
from onnxq.session.session import open_session
from onnxq.torchnet import to_torch
from onnxq.types import Backend
from onnxq.types.note import folded
from onnxq.user_code import find_function
from onnxq.warned import warn_of

CALIBRATION_SAMPLES = 256
"""Samples of the training data that calibration sees where it was given no data of its own."""

FEWEST_HELD_OUT = 8
"""A part of the data smaller than this says nothing about the rest."""

EVALUATION_BATCH = 64

NOTHING_BETTER = (
    "training made nothing better: the files have the parameters of before it. Another learning rate (--lr), more "
    "epochs or more data may help; --last takes those of the last step"
)


NO_NUMBER = "the metric was NaN in every evaluation: the files have the parameters of the last step"


@dataclass
class QatResult:
    """Files and values as of `onnxq.quantize`, the net with the parameters that were written, and its training."""

    result: Result
    net: QatNet
    training: Training

    def __repr__(self) -> str:
        best = self.training.best
        return f"<QatResult after {counted(best.step, 'step')}: {self.result!r}>"


def qat(
    model: Model,
    backend: str | Backend | None = None,
    *,
    train_on: Any,
    out: str | Path,
    evaluate_on: Any = None,
    data: Any = None,
    config: ConfigSource = None,
    settings: TrainSettings | JsonMapping | None = None,
    labels: str | None = None,
    metric: str | None = None,
    holdout: float = 0.1,
    batch_norms: BatchNorms | None = None,
    checkpoints: str | Path | None = None,
    resume: bool = False,
    last: bool = False,
    passes: Sequence[str | Pass] = (),
    strict: bool = False,
    progress: Progress | bool | None = None,
    training_progress: Callable[[Moment], None] | None = None,
    ranks: Ranks | None = None,
) -> QatResult | None:
    """Prepare, train, convert and write a model; only the first process of a torchrun gives back a result.

    train_on     data to train on, as `open_training_data` takes it
    evaluate_on  data to evaluate on; else the fraction `holdout` of the training data is kept apart
    data         calibration samples as for `onnxq.quantize`; else samples of the training data
    labels       name of the labels in a file or dict
    metric       accuracy, loss, agreement, sqnr_db, or module:function(outputs, labels); chosen by the data if left out
    batch_norms  as for `prepare`
    checkpoints  folder of checkpoints, `out`/checkpoints if left out: that one is deleted when the files are written
    last         write the parameters of the last step instead of those of the best evaluation
    progress     as for `onnxq.quantize`; `training_progress` is called with each moment of the training
    """
    folder = Path(out)
    train_settings(settings)  # what is wrong is said before anything is opened
    first = ranks is None or ranks.first
    with ExitStack() as stack:
        tracker = stack.enter_context(watched(progress if first else False, "onnxq.qat"))
        with in_step(ranks):
            # Now, and not after hours of training; the other processes write nothing.
            output = stack.enter_context(claim(folder)) if first else OutputFolder(folder)
            # Without the ranks: every process calibrates for itself.
            session = open_session(
                model, backend=backend, data=data, config=config, passes=passes, strict=strict, progress=tracker
            )
            session.tracker.measure_by("calibrate")
            session.tracker.expect("train", None)
            announce_files(session.tracker, session.settings)
            wanted = settings_for(session, settings)
            samples, held = _open(session.original, train_on, evaluate_on, labels, holdout, wanted.seed)
            session.open_data(samples.calibration(CALIBRATION_SAMPLES) if session.data is None else None)
            net = prepare_session(session, batch_norms=batch_norms)
            refuse_overwriting(session.original, net.prepared.backend, folder, session.settings.name)
            refuse_early(net)
            evaluation = _evaluation(net, samples, held, wanted, metric, Team(ranks))
            teacher = to_torch(net.original).eval()
            evaluation.teacher = teacher.run
        of_float = evaluation.of(teacher.run)
        place = folder / "checkpoints" if checkpoints is None else Path(checkpoints)
        training = train(
            net,
            samples,
            wanted,
            evaluate=evaluation,
            teacher=teacher,
            folder=place,
            resume=resume,
            progress=training_progress or follow(tracker),
            ranks=ranks,
        )
        finished: QatResult | None = None
        with in_step(ranks):
            if first:
                if last:
                    net.load_state_dict(dict(training.last))
                warnings = [] if last else _remarks_on(training)
                finished = _written(net, training, evaluation, of_float, output, place, warnings, last=last)
        if finished is not None and checkpoints is None:
            Checkpoints(place, {}).clear()
        tracker.finish()
    if finished is not None:
        warn_of(folded(finished.result.report["warnings"]), stacklevel=2)
    return finished


def _open(
    graph: Graph, train_on: Any, evaluate_on: Any, labels: str | None, holdout: float, seed: int
) -> tuple[TrainingData, TrainingData]:
    """The data to train on and the data to evaluate on."""
    if not 0 <= holdout < 1:
        raise ConfigError(f"holdout is the fraction of samples to evaluate on, from 0 on and below 1, got {holdout}")
    inputs = input_infos(graph)
    samples = open_training_data(train_on, inputs, labels=labels)
    if evaluate_on is not None:
        return samples, open_training_data(evaluate_on, inputs, labels=labels)
    if isinstance(samples, IndexedData) and round(holdout * len(samples)) >= FEWEST_HELD_OUT:
        rest, held = samples.split(holdout, seed)
        samples.note(f"{len(held)} of the {len(samples)} samples are kept apart to evaluate on")
        return rest, held
    samples.note("evaluated on the training data itself, which flatters: give other data with --eval")
    return samples, samples


def _evaluation(
    net: QatNet, samples: TrainingData, held: TrainingData, settings: TrainSettings, metric: str | None, team: Team
) -> Evaluation:
    if samples.labelled and not held.labelled:
        raise ConfigError("the training data has labels, but the data to evaluate on has none")
    first = next(iter(held.ordered(1)))
    loss = fitted_to(make_loss(settings, net.original, labelled=samples.labelled), first.labels)
    found: Any = metric or default_metric(samples, loss)
    if ":" in found:
        found = find_function(found, "metric")
    elif found not in METRICS:
        raise ConfigError(
            f"metric '{found}' is not known.{did_you_mean(found, METRICS)} Known: {', '.join(METRICS)}, module:function"
        )
    if found == "accuracy" and (first.labels is None or first.labels.is_floating_point()):
        raise ConfigError("accuracy needs labels that are whole numbers, the classes")
    length = fixed_batch(net.graph)
    return Evaluation(
        held,
        loss,
        found,
        batch_size=length or EVALUATION_BATCH,
        team=team,
        higher_is_better=found not in LOWER_IS_BETTER,
        whole_batches=length is not None,
    )


def _remarks_on(training: Training) -> list[str]:
    """What to say of a training whose best parameters are not those of a step that made them better."""
    if training.best.value is None:
        return [NO_NUMBER]
    return [] if training.best.step else [NOTHING_BETTER]


def _written(
    net: QatNet,
    training: Training,
    evaluation: Evaluation,
    of_float: float,
    folder: OutputFolder,
    checkpoints: Path,
    warnings: Sequence[str],
    *,
    last: bool,
) -> QatResult:
    """The files of a trained net, with its training in the report."""
    net.session.clock.seconds["train"] = training.seconds

    def more(stage: Path) -> JsonObject:
        training.write(stage)
        written = _of_file(stage / f"{net.session.settings.name}.onnx", evaluation)
        numbers = {"float": json_number(of_float), "written": json_number(written)}
        return {"training": {**training.to_json(last=last), **numbers}}

    try:
        result = deliver(net, folder, warnings=warnings, notes=training.notes, more=more)
    except CheckFailed as error:
        raise CheckFailed(
            f"{error}\n  the trained parameters are kept in {checkpoints}: with --resume, the same command does not "
            "train again"
        ) from None
    return QatResult(result, net, training)


def _of_file(model: Path, evaluation: Evaluation) -> float:
    """The metric of the written file, run by onnxruntime."""
    session = make_session(model, optimize="none")
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        feed = {name: values.numpy() for name, values in inputs.items()}
        found: list[np.ndarray] = run_session(session, None, feed, "the data to evaluate on")
        return {name: torch.from_numpy(array) for name, array in zip(names, found, strict=True)}

    # The other processes are not here, so the first one looks at all of the data.
    return replace(evaluation, team=None).of(run)
