"""`onnxq compare`: where a quantized model loses accuracy, layer by layer, the worst first."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_table, say

COMPARED_SAMPLES = 4
"""Few samples tell which layers are bad; every tensor of the model is held for each of them."""


def compare(
    float_model: Annotated[
        Path, typer.Argument(metavar="FLOAT", help="The float model.", show_default=False, callback=options.settled)
    ],
    quantized: Annotated[
        Path,
        typer.Argument(
            metavar="QUANTIZED",
            help="The quantized model, or its folder.",
            show_default=False,
            callback=options.settled,
        ),
    ],
    data: options.DataOption = None,
    preprocess: options.PreprocessOption = None,
    samples: Annotated[
        int, typer.Option("--samples", help="Use at most N samples.", metavar="N", min=1)
    ] = COMPARED_SAMPLES,
    random: options.RandomOption = None,
    shape: options.SampleShapeOption = None,
    worst: Annotated[int, typer.Option("--worst", help="Rows to show; 0 shows all.", metavar="N", min=0)] = 20,
    other_model: Annotated[
        bool, typer.Option("--other-model", help="Take FLOAT also where QUANTIZED belongs to one with other constants.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Compare the tensors that two models have in common, the worst layer first.

    Where improvements have changed constants, the float model that stands beside QUANTIZED takes the place of FLOAT.
    """
    from onnxq.cli.data import open_data
    from onnxq.cli.float_model import float_model_of
    from onnxq.cli.shapes import read_shapes
    from onnxq.files import json_number
    from onnxq.graph import Graph
    from onnxq.pipeline.delivered import model_in
    from onnxq.verify.compare import compare_layers

    path = model_in(quantized) if quantized.is_dir() else quantized
    original = Graph.load(float_model)
    # The quantized model may have fixed sizes that the float model leaves free: random samples must fit both.
    fed = original if random is None else Graph.load(path)
    dataset = open_data(fed, data, random, samples, preprocess, read_shapes(shape, fed))
    chosen = float_model if other_model else float_model_of(path, float_model, original)
    errors = compare_layers(original if chosen == float_model else chosen, path, dataset, samples=samples)
    shown = errors[:worst] if worst else errors
    if as_json:
        numbers = [{k: json_number(v) if isinstance(v, float) else v for k, v in asdict(e).items()} for e in shown]
        print_json({"float": str(chosen), "quantized": str(path), "compared": len(errors), "layers": numbers})
        return
    for note in dataset.notes:
        say(f"note: {note}")
    rows = [(e.tensor, e.node, e.op, _decibels(e.sqnr_db), f"{e.cosine:.6f}", f"{e.max_abs:.4g}") for e in shown]
    columns = ("tensor", "node", "operator", ">SQNR", ">cosine", ">largest error")
    print_table(f"{len(errors)} tensors compared, worst first", columns, rows)
    if len(shown) < len(errors):
        say(f"{len(errors) - len(shown)} better ones not shown; --worst 0 shows all")


def _decibels(value: float) -> str:
    return "equal" if math.isinf(value) and value > 0 else f"{value:.1f} dB"
