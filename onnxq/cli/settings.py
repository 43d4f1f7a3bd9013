"""From options to values: plugins run, configuration file, another tool's configuration and options merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.config import Config, read_config
from onnxq.errors import ConfigError
from onnxq.plugins import run_code

if TYPE_CHECKING:
    from onnxq.cli.shapes import Shape
    from onnxq.compat import Translation
    from onnxq.graph import Graph


def read_settings(
    config: Path | Config | None,
    *,
    allow_code: bool = False,
    backend: str | None = None,
    skip: Sequence[str] | None = None,
    min_sqnr: float | None = None,
    shapes: Mapping[str, Shape] | None = None,
    **options: Any,
) -> Config:
    """The configuration with the options on top; patterns of --skip and inputs of --shape add to those of the file.

    `backend` is a target that was given beside the configuration, whose own is then not used.
    """
    unused = [name for name, value in {**options, "backend": backend}.items() if value is not None]
    settings = read_config(config, allow_code=allow_code, unused=unused)
    patterns = (*settings.skip, *skip) if skip else None
    known = settings.sources
    if shapes:
        given = {name: item.model_dump(exclude_unset=True) for name, item in settings.inputs.items()}
        options["inputs"] = {**given, **{name: {"shape": shape} for name, shape in shapes.items()}}
    settings = read_config(settings, options=True, skip=patterns, minimum_sqnr_db=min_sqnr, **options)
    if not skip and not shapes:
        return settings
    said: dict[tuple[str, ...], str] = {("skip", pattern): "--skip" for pattern in skip or ()}
    fixed: dict[tuple[str, ...], str] = {("inputs", name): "--shape" for name in shapes or ()}
    return settings.with_sources({**settings.sources, **said, **known, **fixed}, settings.translation)


def read_foreign(
    graph: Graph,
    *,
    config: Path | None,
    backend: str | None,
    mqbench: Path | None,
    sophgo: Path | None,
    vitis: str | None,
    allow_code: bool = False,
) -> Config | Path | None:
    """The configuration that was given in whichever language; only one of them can be."""
    given = {"-c": config, "--mqbench": mqbench, "--sophgo": sophgo, "--vitis": vitis}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ConfigError(f"{' and '.join(named)} are two configurations: give one of them")
    translation = translate(graph, backend=backend, mqbench=mqbench, sophgo=sophgo, vitis=vitis, allow_code=allow_code)
    return config if translation is None else read_config(translation)


def translate(
    graph: Graph,
    *,
    backend: str | None,
    mqbench: Path | None,
    sophgo: Path | None,
    vitis: str | None,
    allow_code: bool = False,
) -> Translation | None:
    """What the configuration of another tool means for a model; None where none was given."""
    if mqbench is not None:
        from onnxq.compat.read import read_mqbench

        if backend is None:
            raise ConfigError("--mqbench needs the target: -b with a name of MQBench (Tensorrt, SNPE ...) or of onnxq")
        return read_mqbench(mqbench, graph, backend, allow_code=allow_code)
    if sophgo is None and vitis is None:
        return None
    if backend is not None:
        raise ConfigError(f"leave -b out: the target is part of what {'--sophgo' if sophgo else '--vitis'} reads")
    if sophgo is not None:
        from onnxq.compat.read import read_sophgo

        return read_sophgo(sophgo, graph, allow_code=allow_code)
    from onnxq.compat.read import read_vitis

    assert vitis is not None
    return read_vitis(vitis, graph, allow_code=allow_code)


def load_plugins(paths: Sequence[Path] | None) -> None:
    """Run Python files that register things."""
    for path in paths or ():
        run_code(path, "plugin")
