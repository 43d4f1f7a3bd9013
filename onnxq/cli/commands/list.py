"""`onnxq list`: what is registered, plugins included, as tables made from the registries."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_pairs, print_table
from onnxq.text_tables import Cell

if TYPE_CHECKING:
    from onnxq.cli.catalogue import Entry


class Kind(StrEnum):
    """What can be listed."""

    backends = "backends"
    passes = "passes"
    observers = "observers"
    formats = "formats"
    fake_quantizers = "fake-quantizers"
    improvements = "improvements"


def list_command(
    kind: Annotated[
        Kind,
        typer.Argument(
            metavar="KIND",
            help="backends, passes, observers, formats, fake-quantizers or improvements.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Everything about one of them.", show_default=False)
    ] = None,
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List backends, passes, observers, formats, fake-quantizers or improvements; with NAME, show all about one."""
    from onnxq.cli import catalogue
    from onnxq.errors import ConfigError, did_you_mean

    if plugin:
        from onnxq.cli.settings import load_plugins

        load_plugins(plugin)
    entries = {
        Kind.backends: catalogue.backends,
        Kind.passes: catalogue.passes,
        Kind.observers: catalogue.observers,
        Kind.formats: catalogue.formats,
        Kind.fake_quantizers: catalogue.fake_quantizers,
        Kind.improvements: catalogue.improvements,
    }[kind]()
    if name is not None:
        if kind is Kind.backends and ":" in name:
            from onnxq.targets import get_backend

            backend = get_backend(name)
            entries = [catalogue.backend_entry(name, backend)]
        known = [str(entry["name"]) for entry in entries]
        others = catalogue.other_names(str(kind))
        name = others.get(name, name)
        if name not in known:
            near = did_you_mean(name, [*known, *others])
            raise ConfigError(f"there is no '{name}' among the {kind}.{near} Known: {', '.join(known)}")
        entries = [entry for entry in entries if entry["name"] == name]
    if as_json:
        print_json(entries)
    elif name is not None:
        print_pairs(name, [(label, _lines(value)) for label, value in entries[0].items() if label != "name"])
    else:
        _print(kind, entries)


def _print(kind: Kind, entries: list[Entry]) -> None:
    from onnxq.cli.catalogue import BACKEND_COLUMNS, backend_rows

    if kind is Kind.backends:  # too much for a row each; a single one is shown in full
        rows: list[list[Cell]] = [
            [tuple(names), row.activations, row.weights, row.biases, ", ".join(row.files), row.read_by]
            for row, names in backend_rows().items()
        ]
        print_table("backends (int8: symmetric, one scale for each tensor)", BACKEND_COLUMNS, rows)
        return
    lines = [{label: _text(value) for label, value in entry.items()} for entry in entries]
    print_table(str(kind), list(lines[0]), [list(line.values()) for line in lines])


def _lines(value: str | int | list[str]) -> Cell:
    return tuple(value) if isinstance(value, list) else str(value)


def _text(value: str | int | list[str]) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
