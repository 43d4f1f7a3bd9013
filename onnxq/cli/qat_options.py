"""The options of `onnxq qat` that no model of settings has: the data, the metric, what is written."""

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
LastOption = Annotated[
    bool, typer.Option("--last", help="Write the last parameters instead of those of the best evaluation.")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="Folder of checkpoints; OUT/checkpoints by default.", metavar="FOLDER"),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint, if there is one.")]
