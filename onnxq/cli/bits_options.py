"""The options of `onnxq sensitivity` and `onnxq search`: what a model is evaluated on, and what is searched for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from onnxq.cli.options import Given
    from onnxq.mixed_precision import Subject
    from onnxq.progress import Progress
    from onnxq.session.session import Session

EvalOption = Annotated[
    str | None,
    typer.Option(
        "--eval",
        help="Data to evaluate on: .npz file with an array for each input and 'labels', or module:function that "
        "returns (inputs, labels); else the first 32 calibration samples.",
    ),
]
EvalSamplesOption = Annotated[
    int | None, typer.Option("--eval-samples", help="Evaluate on at most N samples.", metavar="N", min=1)
]
LabelsOption = Annotated[
    str | None, typer.Option("--labels", help="Name of the labels in the data of --eval.", metavar="NAME")
]
MetricOption = Annotated[
    str,
    typer.Option(
        "--metric",
        help="sqnr_db, kl, agreement, accuracy, cross_entropy, perplexity, retrieval, or "
        "module:function(outputs, labels).",
    ),
]
BestByOption = Annotated[
    str | None, typer.Option("--best-by", help="max (by default) or min of a metric of one's own.")
]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", help="Keep scores and statistics in this folder, and use what it holds.", metavar="FOLDER"),
]
BitsOption = Annotated[
    str | None, typer.Option("--bits", help="Bits to choose from, such as 8,4 or 16,8,4,2.", metavar="N,N,...")
]
ForOption = Annotated[str, typer.Option("--for", help="weights, activations or both.")]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        help="The most that may be needed: 60% or 1.2MB of weights, 3.5bits on average, BOPS:60% or BOPS:1.5G.",
    ),
]
HoldOption = Annotated[
    float | None, typer.Option("--hold", help="Keep this fraction of the float model's metric.", metavar="FRACTION")
]
DropOption = Annotated[
    float | None, typer.Option("--max-drop", help="Be at most this much worse than the float model.", metavar="X")
]
ReachOption = Annotated[float | None, typer.Option("--reach", help="Reach this value of the metric.", metavar="X")]
FallbackOption = Annotated[
    str | None,
    typer.Option("--fallback", help="Restore layers to 16 (bits) or float, instead of choosing from --bits."),
]
EffortOption = Annotated[
    int | None,
    typer.Option(
        "--effort",
        help="Evaluate what the search ends with after improvements, as quantize has it: 0 (by default) none; 1, 2, 3.",
        metavar="0..3",
    ),
]
EvaluationsOption = Annotated[
    int | None,
    typer.Option(
        "--evaluations", help="Evaluate at most N configurations; 40 by default with --bits.", metavar="N", min=1
    ),
]


class Evaluated(NamedTuple):
    """What the options say about how models are evaluated."""

    evaluate_on: str | None
    labels: str | None
    samples: int | None
    metric: str
    best_by: str | None
    cache: Path | None


def open_subject(
    model: Path,
    given: Given,
    evaluated: Evaluated,
    *,
    random: int | None,
    shape: list[str] | None,
    passes: list[str] | None,
    progress: Progress,
) -> tuple[Session, Subject]:
    """What is studied, with its data: its session, and how it is evaluated."""
    from onnxq.cli.data import open_data
    from onnxq.cli.settings import read_settings
    from onnxq.cli.shapes import read_shapes
    from onnxq.errors import ConfigError
    from onnxq.graph import Graph
    from onnxq.mixed_precision import Subject
    from onnxq.session.session import open_session

    if evaluated.best_by not in (None, "max", "min"):
        raise ConfigError(f"--best-by is max or min, got '{evaluated.best_by}'")
    graph = Graph.load(model)
    settings = read_settings(given, shapes=read_shapes(shape, graph))
    session = open_session(graph, backend=given["backend"], config=settings, passes=passes or (), progress=progress)
    if random is not None:
        samples = None if random and given["data"] is None else settings.data
        session.use_dataset(open_data(session.original, samples, random, settings.samples))
    session.open_data(required=True)
    return session, Subject(session, **evaluated._asdict())


def data_notes(session: Session) -> Iterable[str]:
    """What was noticed when the data was opened."""
    return () if session.dataset is None else session.dataset.source.noted
