"""From options to values: plugins run, configuration file, another tool's configuration and options merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.config import Config, read_config
from onnxq.config.assignments import Assignment, refuse_two_of_a_key
from onnxq.errors import ConfigError
from onnxq.plugins import run_code
from onnxq.targets import file_of_backend, get_backend
from onnxq.types.dialect import DIALECTS

if TYPE_CHECKING:
    from onnxq.cli.options import Given
    from onnxq.cli.shapes import Shape
    from onnxq.compat import Translation
    from onnxq.graph import Graph


def read_settings(
    given: Given,
    graph: Graph | None = None,
    *,
    config: Path | None = None,
    backend: str | None = None,
    shapes: Mapping[str, Shape] | None = None,
    shortcuts: Sequence[Assignment] = (),
    defaults: Sequence[Assignment] = (),
) -> Config:
    """The configuration with the options on top; patterns of --skip and inputs of --shape add to those of the file.

    `graph` is needed for configurations of other tools. `config` is a file for when none was given, `backend` a target
    that is known otherwise, so that the file's own is not used. `shortcuts` are options of a command that stand for
    keys, `defaults` what it takes for keys that nobody gives it, whatever the file says.
    """
    assignments = [*given.assignments, *shortcuts]
    assignments += [Assignment(("inputs", name), {"shape": shape}, "--shape") for name, shape in (shapes or {}).items()]
    refuse_two_of_a_key(assignments)
    taken = {one.path for one in assignments}
    assignments += [one for one in defaults if one.path not in taken]
    unused = [one.path[0] for one in assignments if len(one.path) == 1] + ([] if backend is None else ["backend"])
    translation = None if graph is None else _foreign(given, graph)
    source = (given.config or config) if translation is None else translation
    settings = read_config(source, allow_code=given.allow_code, unused=unused)
    # A target that is given beside a configuration takes the place of the configuration's own.
    return read_config(settings, assignments=[one for one in assignments if one.path != ("backend",)])


def _foreign(given: Given, graph: Graph) -> Translation | None:
    """The configuration of another tool; only one configuration can be given, in whichever language."""
    named = [*([] if given.config is None else ["-c"]), *(f"--{name}" for name in given.foreign)]
    if len(named) > 1:
        raise ConfigError(f"{' and '.join(named)} are two configurations: give one of them")
    return translate(given, graph)


def translate(given: Given, graph: Graph) -> Translation | None:
    """What the configuration of another tool means for a model; None where none was given."""
    from onnxq.compat.read import read_dialect

    backend = given["backend"]
    for name, configuration in given.foreign.items():
        target = DIALECTS.get(name).target
        if target and backend is None:
            raise ConfigError(f"--{name} needs the target: -b with {target}")
        if backend is not None and not target:
            raise ConfigError(f"leave -b out: the target is part of what --{name} reads")
        return read_dialect(name, configuration, graph, backend, allow_code=given.allow_code)
    return None


def load_plugins(paths: Sequence[Path] | None, backend: str | None = None) -> None:
    """Run Python files that register things, that of a backend too: a plan may have number formats of its own."""
    if backend is not None and file_of_backend(backend) is not None:
        get_backend(backend)
    for path in paths or ():
        run_code(path, "plugin")
