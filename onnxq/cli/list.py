"""`onnxq list`: what is registered, plugins included, as tables made from the registries."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_pairs, print_table

if TYPE_CHECKING:
    from onnxq.cli.catalogue import Entry


class Kind(StrEnum):
    """What can be listed."""

    backends = "backends"
    passes = "passes"
    observers = "observers"
    formats = "formats"


def list_registered(
    kind: Annotated[
        Kind, typer.Argument(metavar="KIND", help="backends, passes, observers or formats.", show_default=False)
    ],
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List backends, passes, observers or number formats."""
    from onnxq.cli import catalogue

    if plugin:
        from onnxq.cli.settings import load_plugins

        load_plugins(plugin)
    entries = {
        Kind.backends: catalogue.backends,
        Kind.passes: catalogue.passes,
        Kind.observers: catalogue.observers,
        Kind.formats: catalogue.formats,
    }[kind]()
    if as_json:
        print_json(entries)
    else:
        _print(kind, entries)


def _print(kind: Kind, entries: list[Entry]) -> None:
    rows = [{label: _text(value) for label, value in entry.items()} for entry in entries]
    if kind is Kind.backends:  # too much for a row each
        for row in rows:
            print_pairs(row.pop("name"), row.items())
    else:
        print_table(str(kind), list(rows[0]), [list(row.values()) for row in rows])


def _text(value: str | int | list[str]) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
