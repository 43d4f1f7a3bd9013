"""How a setting is given on the command line: said beside its type, so that commands make their options of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Option:
    """The option of a setting, in the `Annotated` of its type.

    group    commands take the options of a group together
    names    such as "--data -d"; else the key with dashes
    help     else the description of the key as a sentence
    kind     what its text is read as; else what the type of the key says
    read     the value of the setting from that of the option
    """

    group: str
    names: str = ""
    help: str = ""
    metavar: str | None = None
    kind: type | None = None
    read: Callable[[str, Any], Any] | None = None


@dataclass(frozen=True)
class KeyOption:
    """An option as a command declares it; what was not given is None."""

    key: str
    group: str
    names: tuple[str, ...]
    help: str
    metavar: str | None
    kind: Any
    read: Callable[[str, Any], Any] | None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self.names[0].partition("/")[0]


def options_of(settings: type) -> dict[str, KeyOption]:
    """The options of a model of settings by their keys."""
    fields = getattr(settings, "model_fields", {})
    found = {}
    for key, hint in get_type_hints(settings, include_extras=True).items():
        for option in getattr(hint, "__metadata__", ()):
            if isinstance(option, Option):
                names = tuple(option.names.split()) or (f"--{key.replace('_', '-')}",)
                text = option.help or _sentence(fields[key].description)
                kind = option.kind or _kind(hint.__origin__)
                found[key] = KeyOption(key, option.group, names, text, option.metavar, kind, option.read)
    return found


def _sentence(description: str) -> str:
    first, rest = description[0], description[1:]
    return (first if description.startswith("onnx") else first.upper()) + rest + "."


def _kind(hint: Any) -> Any:
    """What an option of a key's type is: lists are given one by one, what can be a text or a table as text."""
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    if get_origin(hint) is tuple:
        return list[str]
    while get_origin(kinds[0]) is not None and len(kinds) == 1 and get_origin(kinds[0]) is not tuple:
        kinds = [get_args(kinds[0])[0]]  # Annotated[bool, Strict] | None
    if get_origin(kinds[0]) is tuple:
        return list[str]
    return kinds[0] if len(kinds) == 1 and kinds[0] in (bool, int, float) else str
