"""`onnxq init`: a commented configuration to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_warning, say

if TYPE_CHECKING:
    from onnxq.cli.facts import ModelFacts
    from onnxq.config.template import ModelParts

NAME = "onnxq.toml"


def init(
    model: options.ModelArgument,
    backend: options.RequiredBackendOption,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File for the configuration, or a folder; never one that is there.")
    ] = Path(NAME),
    plugin: options.PluginOption = None,
    quiet: options.QuietOption = False,
) -> None:
    """Write a commented configuration for MODEL and a target: each setting, its meaning and default.

    'onnxq quantize -c' reads it as it is; what means nothing for the target is left out. Inputs, large layers and
    operators of MODEL are examples in it.
    """
    from onnxq.cli.artifacts import output_file
    from onnxq.cli.facts import model_facts
    from onnxq.cli.settings import load_plugins
    from onnxq.config.template import config_template
    from onnxq.errors import ConfigError
    from onnxq.files import replace_file
    from onnxq.targets import file_of_backend, get_backend

    load_plugins(plugin, backend)
    chosen = get_backend(backend)
    target = output_file(out, NAME, model)
    if target.exists():
        raise ConfigError(f"{target} is there already and is not overwritten: choose another file with -o")
    facts = model_facts(model)
    for line in facts.blocking:
        print_warning(line)
    code = "" if file_of_backend(backend) is None else " --allow-code"
    command = f"onnxq quantize {shlex.quote(str(model))} -c {shlex.quote(str(target))}{code} -d DATA -o FOLDER"
    text = config_template(backend, chosen, _parts(facts), command)
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, lambda stream: stream.write(text.encode()))
    say(f"written: {target}", quiet=quiet)
    say(f"next: {command}", quiet=quiet)


def _parts(facts: ModelFacts) -> ModelParts:
    from onnxq.config.template import ModelInput, ModelLayer, ModelParts

    layers = []
    for layer in facts.largest:
        work = "" if layer.macs is None else f"{layer.macs:,} MACs, "
        layers.append(ModelLayer(layer.name, f"{layer.operator}, {work}{layer.parameters:,} parameters"))
    inputs = [ModelInput(port.name, port.type, port.shape) for port in facts.inputs]
    return ModelParts(facts.path, inputs, layers, facts.operators)
