"""`onnxq evaluate`: metrics of a float model, of quantized files and of what their targets compute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_table, print_warning, say

if TYPE_CHECKING:
    from onnxq.graph import Graph
    from onnxq.mixed_precision.evaluate import Evaluation

FILE, SIMULATED = "file", "simulated"


def evaluate(
    float_model: Annotated[
        Path, typer.Argument(metavar="FLOAT", help="The float model.", show_default=False, callback=options.settled)
    ],
    quantized: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[QUANTIZED]...",
            help="Quantized models; of the folder of a run, what the target computes too (simulated).",
            show_default=False,
        ),
    ] = None,
    *,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            "-d",
            help="Samples: .npz file with an array for each input and 'labels', module:function that returns (inputs, "
            "labels), or what quantize takes, which has no labels. Of a decoder with past keys and values also "
            "prompts, as huggingface takes them: .txt, .npz, sampled.",
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help="sqnr_db (by default), kl, agreement, accuracy, cross_entropy, perplexity, retrieval, or "
            "module:function(outputs, labels). Repeatable.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", help="Name of the labels in the data.", metavar="NAME")
    ] = None,
    samples: Annotated[int | None, typer.Option("--samples", help="Use at most N samples.", metavar="N", min=1)] = None,
    preprocess: options.PreprocessOption = None,
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Measure metrics of a float model and of quantized ones on the same data.

    sqnr_db, kl and agreement hold a model against the float one, accuracy and functions of one's own against labels.
    """
    from onnxq.cli.settings import load_plugins
    from onnxq.graph import Graph
    from onnxq.integrations.huggingface.prompts import prompts_to_evaluate
    from onnxq.mixed_precision.evaluate import evaluate_graphs

    load_plugins(plugin)
    models: dict[str, Graph] = {}
    for path in quantized or ():
        options.settled(path)
        models.update(_models(path, float_model))
    found = evaluate_graphs(
        Graph.load(float_model),
        models,
        data if labels is not None else prompts_to_evaluate(float_model, data) or data,
        metrics=metric or ("sqnr_db",),
        labels=labels,
        samples=samples,
        preprocess=preprocess,
    )
    for note in found.notes:
        print_warning(note)
    if as_json:
        print_json(found.to_json())
    else:
        _show(found, float_model)


def _models(path: Path, float_model: Path) -> dict[str, Graph]:
    """A file; of a folder its model, and what the target of the run computes."""
    from onnxq.cli.runs import refuse_no_run
    from onnxq.graph import Graph
    from onnxq.pipeline.delivered import model_in

    if not path.is_dir():
        return {f"{path} ({FILE})": Graph.load(path)}
    refuse_no_run(path)
    written = model_in(path)
    return {f"{written} ({FILE})": Graph.load(written), f"{written} ({SIMULATED})": _simulated(path, float_model)}


def _simulated(folder: Path, float_model: Path) -> Graph:
    from onnxq.cli.artifacts import read_plan, read_qparams
    from onnxq.cli.consistency import check_parameters
    from onnxq.cli.float_model import float_model_in
    from onnxq.cli.planned import planned_session
    from onnxq.config import read_config
    from onnxq.emit.simulate import simulate
    from onnxq.output_folder import read_together

    plan, table = read_together(folder, lambda: (read_plan(folder), read_qparams(folder)))
    session = float_model_in(
        folder, plan, float_model, lambda path: planned_session(path, plan, None, read_config(None), None)
    )
    prepared = session.prepared
    check_parameters(prepared.graph, plan, table)
    return simulate(prepared.graph, plan.active, table, prepared.backend, pairs=True)[0]


def _show(found: Evaluation, float_model: Path) -> None:
    from onnxq.mixed_precision.text import evaluation_table

    columns, rows = evaluation_table(found, str(float_model))
    print_table(f"{found.samples} samples", columns, rows)
    if not found.of_models:
        say("only the float model was given: name quantized files, or folders of runs, behind it")
