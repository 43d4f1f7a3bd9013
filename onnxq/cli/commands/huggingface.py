"""`onnxq huggingface`: a folder with config.json, tokenizer and model.onnx, quantized as a whole."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_table, print_warning, say
from onnxq.cli.progress import run_bar


@options.with_settings("config code improve time")
def huggingface(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder with config.json and model.onnx or onnx/.", show_default=False),
    ],
    out: options.FolderOption,
    given: options.Given,
    dtype: Annotated[
        str,
        typer.Option("--dtype", help="What transformers.js calls the files: q8, uint8, q4, q2; several with commas."),
    ] = "q8",
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="texts.txt with one text in each line, images, or what quantize takes. q8, q4 and q2 can do without.",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[int | None, typer.Option("--samples", help="Use at most N samples.", metavar="N", min=1)] = None,
    file: Annotated[
        str | None, typer.Option("--file", help="The float model, where FOLDER has several.", metavar="NAME")
    ] = None,
    no_float: Annotated[bool, typer.Option("--no-float", help="Leave the float models out of the new folder.")] = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Quantize the models in a folder of Hugging Face into a new folder with all of its files.

    The names are those that Optimum and transformers.js look for: model_quantized.onnx, model_q4.onnx ...
    """
    from onnxq.cli.settings import read_settings
    from onnxq.config import read_config
    from onnxq.errors import OnnxqWarning
    from onnxq.integrations.huggingface import quantize_folder

    with run_bar("huggingface", quiet=quiet) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxqWarning)  # printed below
        made = quantize_folder(
            folder,
            out,
            dtypes=[name.strip() for name in dtype.split(",")],
            data=data,
            file=file,
            keep_float=not no_float,
            config=read_config(read_settings(given), samples=samples),
            progress=progress,
        )
    found = [one.to_json() for one in made]
    for one in found:
        for warning in one["warnings"]:
            print_warning(f"{Path(one['model']).name}: {warning}")
    if as_json:
        print_json({"folder": str(out), "files": found})
        return
    rows = []
    for one in found:
        before, after = one["bytes"]
        worst = min(one["sqnr_db"].values(), default=None)
        quality = "not measured" if worst is None else f"{worst:.1f} dB"
        size = f"{before / 2**20:.1f} -> {after / 2**20:.1f} MiB"
        rows.append([one["dtype"], str(Path(one["model"]).relative_to(out)), size, quality])
    if not quiet:
        print_table(f"quantized into {out}", ["dtype", "file", ">size", ">SQNR"], rows)
    say(f"what was decided and measured: {out}/onnxq/", quiet=quiet)
