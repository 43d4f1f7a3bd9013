"""`onnxq translate`: what a configuration of another tool means for a model, key by key, and as settings of onnxq."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, say
from onnxq.types.dialect import DIALECTS

SETTINGS_NAME = "settings.json"


@options.with_settings("backend foreign code")
def translate(
    model: options.ModelArgument,
    given: options.Given,
    backend: Annotated[
        str | None, typer.Option("--backend", "-b", help="Target, for --mqbench: a name of MQBench's or of onnxq's.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write onnxq's own settings into this file.")] = None,
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Read a configuration of MQBench or of a vendor's tool and show what each key becomes for MODEL.

    With -o the result is written as a configuration for -c.
    """
    from onnxq.cli.artifacts import output_file, write_output
    from onnxq.cli.settings import load_plugins
    from onnxq.cli.settings import translate as read
    from onnxq.cli.summary import print_translation
    from onnxq.config import read_config
    from onnxq.errors import ConfigError
    from onnxq.graph import Graph
    from onnxq.session.prepare import make_plan
    from onnxq.session.session import open_session

    load_plugins(plugin)
    graph = Graph.load(model)
    translation = read(given, graph)
    if translation is None:
        *others, last = (f"--{name} {dialect.argument}" for name, dialect in DIALECTS.items())
        raise ConfigError(f"give the configuration: {', '.join(others)} or {last}")
    target = None if out is None else output_file(out, SETTINGS_NAME, model, *map(Path, given.foreign.values()))
    settings = read_config(translation)
    make_plan(open_session(graph, config=settings).prepared)  # what the target cannot take is said now
    values = settings.model_dump(mode="json", exclude_unset=True)
    if target is not None:
        write_output(target, values)
    if as_json:
        print_json({"from": translation.tool, "keys": [row.to_json() for row in translation.rows], "config": values})
    elif not quiet:
        print_translation(translation)
    if target is not None:
        say(f"settings written to {target}: onnxq quantize ... -c {target}", quiet=quiet)
