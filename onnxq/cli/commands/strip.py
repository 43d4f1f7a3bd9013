"""`onnxq strip`: quantization taken out of a model, so that it can be quantized anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_pairs, print_warning, say

if TYPE_CHECKING:
    from onnxq.strip import Stripped
    from onnxq.verify.report import OutputCheck

STRIPPED_NAME = "float.onnx"

SHOWN = 8
"""Nodes of a kind that are named; --json has all of them, and --partial names all that stay."""

COMPARED_SAMPLES = 8

FAR_DB = 10.0
"""Below this it is not only rounding that has gone."""


def strip(
    model: options.ModelArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the float model, or a folder.")],
    data: options.DataOption = None,
    preprocess: options.PreprocessOption = None,
    samples: Annotated[
        int, typer.Option("--samples", help="Compare at most N samples.", metavar="N", min=1)
    ] = COMPARED_SAMPLES,
    random: options.RandomOption = None,
    shape: options.SampleShapeOption = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Write the model also where some of its nodes stay quantized.")
    ] = False,
    keep_ranges: Annotated[
        bool, typer.Option("--keep-ranges", help="Cut activations off where their quantizers did, with a Clip each.")
    ] = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Take Q/DQ pairs, quantized operators and dynamic quantization out of MODEL.

    The weights become exactly the numbers that the integers stand for; activations are not rounded any more. With -d
    the outputs are compared with those of the quantized model.
    """
    from onnxq.cli.artifacts import output_file
    from onnxq.cli.data import open_data
    from onnxq.cli.shapes import read_shapes
    from onnxq.errors import UnsupportedError
    from onnxq.graph import Graph
    from onnxq.output_folder import claim, staging
    from onnxq.pipeline.written import check_simulated
    from onnxq.ptq.search.sample_split import verification_samples
    from onnxq.strip import strip as take_out

    target = output_file(out, STRIPPED_NAME, model)
    original = Graph.load(model)
    dataset = None
    shapes = read_shapes(shape, original)
    if data is not None or random is not None or shapes:
        dataset = open_data(original, data, random, samples, preprocess, shapes)
    graph = original.copy()
    result = take_out(graph, keep_ranges=keep_ranges)
    if not result.before:
        raise UnsupportedError(
            f"{model} has no quantized operators: it is a float model, and can be quantized as it is"
        )
    if result.left and not partial:
        raise UnsupportedError(_refusal(result))
    with claim(target.parent, target.name) as output, staging(output, original.files()) as stage:
        compared = None if dataset is None else verification_samples(dataset, samples)
        outputs = check_simulated(graph, original, stage / target.name, compared)
        files = [target.parent / path.name for path in sorted(stage.iterdir())]
    if as_json:
        checks = [check.to_json() for check in outputs] if dataset is not None else []
        print_json({"files": [str(path) for path in files], **asdict(result), "outputs": checks})
    elif not quiet:
        _print(result, outputs if dataset is not None else (), model, target)
    for check in outputs:
        if check.sqnr_db is not None and check.sqnr_db < FAR_DB:
            print_warning(
                f"output '{check.name}' has only {check.sqnr_db:.1f} dB against the quantized model: quantizers may "
                "have cut off what a Clip should; try --keep-ranges"
            )
    for left in result.left:
        print_warning(f"node '{left.node}' ({left.op}) stays quantized: {left.reason}")
    say(f"float model written to {target}", quiet=quiet or as_json)


def _refusal(result: Stripped) -> str:
    shown = [f"node '{left.node}' ({left.op}): {left.reason}" for left in result.left[:SHOWN]]
    if len(result.left) > SHOWN:
        shown.append(f"and {len(result.left) - SHOWN} more")
    lines = "\n  ".join(shown)
    return (
        f"{len(result.left)} of {sum(result.before.values())} quantized nodes cannot be made float exactly, so nothing "
        f"was written:\n  {lines}\n  --partial writes the model with these nodes as they are"
    )


def _print(result: Stripped, outputs: tuple[OutputCheck, ...], model: Path, target: Path) -> None:
    left = Counter(left.op for left in result.left)
    pairs = [("model", f"{model} -> {target}")]
    pairs += [
        ("taken out", f"{count - left[op]} {op}" + (f" of {count}" if left[op] else ""))
        for op, count in result.before.items()
    ]
    restored = list(result.restored.items())
    pairs += [("restored", f"{op} behind '{tensor}', where a quantizer cut off") for tensor, op in restored[:SHOWN]]
    if len(restored) > SHOWN:
        pairs.append(("restored", f"and {len(restored) - SHOWN} more, which --json has"))
    pairs += [
        ("against quantized", f"{check.sqnr_db:.1f} dB on output '{check.name}'")
        if check.sqnr_db is not None
        else ("against quantized", f"{check.agreement or 0:.2%} of output '{check.name}' equal")
        for check in outputs
    ]
    print_pairs("quantization taken out", pairs)
