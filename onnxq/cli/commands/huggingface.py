"""`onnxq huggingface`: a folder with config.json, tokenizer and model.onnx, quantized as a whole."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_table, print_warning, say
from onnxq.cli.progress import run_bar


def read_assignments(given: Sequence[str]) -> dict[str, str]:
    """key=value -> what it says."""
    from onnxq.errors import ConfigError

    found = {}
    for text in given:
        key, mark, value = text.partition("=")
        if not (key and mark and value):
            raise ConfigError(f"--option {text}: write KEY=VALUE, such as block=128")
        found[key] = value
    return found


@options.with_settings("config code improve time")
def huggingface(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder with config.json and model.onnx or onnx/.", show_default=False),
    ],
    out: options.FolderOption,
    given: options.Given,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            help="What transformers.js calls the files: q8, uint8, int8, q4, q2, bnb4; of language models also w8a16, "
            "w4a16, w4a8. Several with commas. By default q8, and w4a16 beside genai_config.json.",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            help="An option of the dtype's target in another way, such as block=128 or symmetric=yes. Repeatable.",
            metavar="KEY=VALUE",
            show_default=False,
        ),
    ] = None,
    kv_cache: Annotated[
        str | None,
        typer.Option(
            "--kv-cache",
            help="int8 or int4: keys and values of GroupQueryAttention too, calibrated on the prompts of --data.",
            metavar="FORMAT",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="texts.txt with a text (or prompt) in each line, prompts.npz with numbers of tokens, sampled "
            "(or sampled:64x256@1, 64 prompts of 256 tokens with seed 1: the float model writes them), images, or what "
            "quantize takes. Dtypes of weights alone, and q8, can do without.",
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

    The names are those that Optimum and transformers.js look for: model_quantized.onnx, model_q4.onnx ... Where
    genai_config.json names the decoder, the quantized one takes its place.
    """
    from onnxq.cli.settings import read_settings
    from onnxq.config import read_config
    from onnxq.errors import OnnxqWarning
    from onnxq.integrations.huggingface import quantize_folder
    from onnxq.ptq.search.next_tokens import LOGITS

    with run_bar("huggingface", quiet=quiet) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxqWarning)  # printed below
        made = quantize_folder(
            folder,
            out,
            dtypes=[name.strip() for name in dtype.split(",")] if dtype else (),
            data=data,
            file=file,
            keep_float=not no_float,
            options=read_assignments(option or ()),
            kv_cache=kv_cache,
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
        figures = one["sqnr_db"]
        worst = figures.get(LOGITS, min(figures.values(), default=None))
        quality = "not measured" if worst is None else f"{worst:.1f} dB"
        size = f"{before / 2**20:.1f} -> {after / 2**20:.1f} MiB"
        rows.append([one["dtype"], str(Path(one["model"]).relative_to(out)), size, quality])
    if not quiet:
        print_table(f"quantized into {out}", ["dtype", "file", ">size", ">SQNR"], rows)
    for one in found:
        if "kv_cache" in one:
            cache = one["kv_cache"]
            few, many = cache["bytes_per_token"][::-1]
            say(
                f"cache of {cache['format']}: {many} -> {few} bytes for each token, {cache['sqnr_db']:.1f} dB, "
                f"{cache['agreement']:.1%} of highest logits the same",
                quiet=quiet,
            )
    say(f"what was decided and measured: {out}/onnxq/", quiet=quiet)
