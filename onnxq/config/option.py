"""How a setting is given on the command line: said beside its type, so that commands make their options of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Option:
    """The option of a setting, in the `Annotated` of its type.

    group    commands take the options of a group together
    names    such as "--data -d"; else the key with dashes
    help     else the description of the key as a sentence
    kind     what its text is read as; else what the type of the key says
    read     the value of the setting from that of the option
    adds     whether a list goes behind what the file has, instead of in its place
    unset    for the documentation: what it means to leave the key out, where that is not the target's choice
    """

    group: str
    names: str = ""
    help: str = ""
    metavar: str | None = None
    kind: Any = None
    read: Callable[[str, Any], Any] | None = None
    adds: bool = False
    unset: str = ""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return re.split("[ /]", self.names)[0]


def options_of(settings: type) -> dict[str, Option]:
    """The options of a model of settings by their keys, with nothing left out."""
    fields = getattr(settings, "model_fields", {})
    return {
        key: replace(
            option,
            names=option.names or f"--{key.replace('_', '-')}",
            help=option.help or _sentence(fields[key].description),
            kind=option.kind or _kind(hint.__origin__),
        )
        for key, hint in get_type_hints(settings, include_extras=True).items()
        for option in getattr(hint, "__metadata__", ())
        if isinstance(option, Option)
    }


def _sentence(description: str) -> str:
    first, rest = description[0], description[1:]
    return (first if description.startswith("onnx") else first.upper()) + rest + "."


def _kind(hint: Any) -> Any:
    """What an option of a key's type is: lists are given one by one, what can be a text or a table as text."""
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in choices if kind is not NoneType]
    if get_origin(kinds[0]) is tuple:
        return list[str]
    return kinds[0] if kinds in ([bool], [int], [float]) else str
