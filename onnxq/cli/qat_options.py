"""The options of `onnxq qat` that are about training: one spelling and one help text each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    str,
    typer.Option(
        "--batch-norms", help="folded before training; frozen or live: apart, with fixed or learnt statistics."
    ),
]
EpochsOption = Annotated[int | None, typer.Option("--epochs", help="Passes over the data; 10 by default.", metavar="N")]
StepsOption = Annotated[int | None, typer.Option("--steps", help="At most this many steps.", metavar="N")]
BatchSizeOption = Annotated[
    int | None, typer.Option("--batch-size", help="Samples of a step, over all processes; 32 by default.", metavar="N")
]
AccumulateOption = Annotated[
    int | None, typer.Option("--accumulate", help="Slices of a batch, one after the other.", metavar="N")
]
LearningRateOption = Annotated[
    float | None, typer.Option("--lr", help="Learning rate; 0.001 by default, which is much where 8 bits cost little.")
]
ScaleRateOption = Annotated[
    float | None, typer.Option("--scale-lr", help="Learning rate of what fake-quantizers learn; lr / 10 by default.")
]
OptimizerOption = Annotated[str | None, typer.Option("--optimizer", help="adam (by default), adamw or sgd.")]
MomentumOption = Annotated[float | None, typer.Option("--momentum", help="Momentum of sgd.")]
WeightDecayOption = Annotated[float | None, typer.Option("--weight-decay", help="Decay of weights, of nothing else.")]
ScheduleOption = Annotated[str | None, typer.Option("--schedule", help="cosine (by default), step or constant.")]
WarmupOption = Annotated[
    float | None, typer.Option("--warmup", help="Linear warm-up: fraction of all steps, or epochs from 1 on.")
]
StepSizeOption = Annotated[float | None, typer.Option("--step-size", help="Epochs between steps of the schedule.")]
GammaOption = Annotated[float | None, typer.Option("--gamma", help="Factor of each step of the schedule.")]
ClipOption = Annotated[float | None, typer.Option("--clip-gradient", help="Largest norm of the gradients.")]
ObserverFreezeOption = Annotated[
    str | None,
    typer.Option("--observer-freeze", help="When observers stop: fraction of all steps, epochs from 1 on, or never."),
]
BatchNormFreezeOption = Annotated[
    str | None, typer.Option("--batch-norm-freeze", help="When live statistics stop: as --observer-freeze.")
]
QuantizeFromOption = Annotated[
    float | None, typer.Option("--quantize-from", help="When quantization begins: fraction of all steps, or epochs.")
]
DistillOption = Annotated[
    float | None, typer.Option("--distill", help="Share of the loss against the float model, 0 .. 1.")
]
DistillLossOption = Annotated[str | None, typer.Option("--distill-loss", help="kl, mse or auto.")]
TemperatureOption = Annotated[float | None, typer.Option("--temperature", help="Temperature of kl.")]
LabelLossOption = Annotated[
    str | None, typer.Option("--label-loss", help="cross_entropy, mse, bce, auto, or module:function(outputs, labels).")
]
LabelOutputOption = Annotated[
    str | None, typer.Option("--label-output", help="Output that the labels are for; the first float one by default.")
]
RecomputeOption = Annotated[
    int | None,
    typer.Option("--recompute", help="Gradient checkpointing in N segments: less memory, more time.", metavar="N"),
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Same seed, same result.", metavar="N")]
EvaluateEveryOption = Annotated[
    int | None, typer.Option("--evaluate-every", help="Epochs between evaluations.", metavar="N")
]
BestByOption = Annotated[
    str | None, typer.Option("--best-by", help="max or min of the metric; the metric knows by default.")
]
PatienceOption = Annotated[
    int | None, typer.Option("--patience", help="End after N evaluations without a better metric.", metavar="N")
]
LastOption = Annotated[
    bool, typer.Option("--last", help="Write the last parameters instead of those of the best evaluation.")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="Folder of checkpoints; OUT/checkpoints by default.", metavar="FOLDER"),
]
CheckpointEveryOption = Annotated[
    int | None, typer.Option("--checkpoint-every", help="Steps between checkpoints within an epoch.", metavar="N")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint, if there is one.")]
