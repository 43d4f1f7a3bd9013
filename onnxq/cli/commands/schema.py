"""`onnxq schema`: the JSON schema of the configuration, for editors and for checking files elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli.console import print_json, say


def schema(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the schema into this file.")] = None,
) -> None:
    """Print the JSON schema of the configuration file, every key with its meaning."""
    from onnxq.cli.artifacts import output_file, write_output
    from onnxq.config import config_schema

    if out is None:
        print_json(config_schema())
        return
    target = output_file(out, "onnxq-config.schema.json")
    write_output(target, config_schema())
    say(f"schema written to {target}")
