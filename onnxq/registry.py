"""Named things (passes, observers, backends): one dictionary type with a helpful error for unknown names; arguments."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import FileFinder
from typing import Generic, TypeVar

from onnxq.errors import ConfigError, did_you_mean
from onnxq.plugins import load_installed

T = TypeVar("T")


class Registry(Generic[T]):
    """Name -> thing. `packages` are imported module by module when needed, so that one file is all an entry needs.

    Folders in a package are looked through too, one level deep: a vendor's, or those of a family of methods. Who asks
    for one name gets the module or the folder that is called so; all are imported for a name that is not found there,
    and for who asks for all names.
    """

    def __init__(self, kind: str, *packages: str) -> None:
        self.kind = kind
        self._packages = packages
        self._loaded = not packages
        self._items: dict[str, T] = {}
        self._aliases: dict[str, str] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that files its argument under `name`; a second, different owner of a name is an error."""

        def add(item: T) -> T:
            self.add(name, item)
            return item

        return add

    def add(self, name: str, item: T) -> None:
        held = self._items.get(name)
        if held is not None and held is not item and _home(held) != _home(item):
            raise ConfigError(f"{self.kind} '{name}' is registered twice; choose another name")
        self._items[name] = item

    def add_alias(self, alias: str, name: str) -> None:
        """Let another name stand for an entry; only the entry's own name is listed."""
        self._aliases[alias] = name

    def name_of(self, name: str) -> str:
        """The name under which an entry is listed; a name that is no alias is its own."""
        if not self._knows(name):
            self._load_called(name)
        if not self._knows(name):
            self._load()
        load_installed()
        return name if name in self._items else self._aliases.get(name, name)

    def forget(self, name: str | None) -> None:
        """Take an entry out, so that its owner may register it anew; unknown names are nobody's loss."""
        if name is not None:
            self._items.pop(name, None)

    def get(self, name: str) -> T:
        try:
            return self._items[self.name_of(name)]
        except KeyError:
            known = ", ".join(self.names())
            raise ConfigError(
                f"unknown {self.kind} '{name}'.{did_you_mean(name, self._items)} Known: {known}"
            ) from None

    def names(self) -> list[str]:
        self._load()
        return sorted(self._items)

    def items(self) -> list[tuple[str, T]]:
        self._load()
        return sorted(self._items.items(), key=lambda pair: pair[0])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.name_of(name) in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _knows(self, name: str) -> bool:
        return name in self._items or name in self._aliases

    def _load_called(self, name: str) -> None:
        """Import what is called like an entry: its module, or all of the folder that it is in or that has its name."""
        if self._loaded:
            return
        for package in self._packages:
            for module in _modules_called(name, package):
                importlib.import_module(module)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # before the work: modules that are loaded now may look something up
        try:
            for package in self._packages:
                for module in _modules(package, depth=1):
                    importlib.import_module(module)
            load_installed()
        except BaseException:
            self._loaded = False  # the next who asks is told the same, and not that a name is unknown
            raise


def _modules_called(name: str, package: str) -> list[str]:
    """The module of a package that has this name; in a folder in it, all modules of that folder.

    A folder `chip` is that of `chip_two` as well.
    """
    for found in sorted(pkgutil.iter_modules(importlib.import_module(package).__path__), key=lambda found: found.name):
        if found.ispkg and isinstance(found.module_finder, FileFinder):
            inside = list(pkgutil.iter_modules([f"{found.module_finder.path}/{found.name}"]))
            if f"{name}_".startswith(f"{found.name}_") or any(name == module.name for module in inside):
                return [f"{package}.{found.name}.{module.name}" for module in inside if not module.ispkg]
        elif name == found.name:
            return [f"{package}.{name}"]
    return []


def _modules(package: str, depth: int) -> Iterator[str]:
    """The modules of a package and of the folders in it, `depth` levels down."""
    path = importlib.import_module(package).__path__
    for found in sorted(pkgutil.iter_modules(path, f"{package}."), key=lambda found: found.name):
        if not found.ispkg:
            yield found.name
        elif depth:
            yield from _modules(found.name, depth - 1)


def _home(item: object) -> tuple[str, str]:
    """Where an item was defined: a file that is run again registers its own things anew."""
    item = getattr(item, "__wrapped__", item)
    return getattr(item, "__module__", ""), getattr(item, "__qualname__", repr(item))


def read_arguments(text: str, names: Sequence[str], owner: str, word: str) -> dict[str, str]:
    """Name -> value of arguments written as "0.9,alpha=4": by their place, or by name. `names` are the known ones.

    `owner` and `word` are for the errors: "observer 'kl'", "parameter".
    """
    found: dict[str, str] = {}
    for position, part in enumerate(part.strip() for part in text.split(",") if part.strip()):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            if position >= len(names):
                takes = ", ".join(names) or "none"
                raise ConfigError(f"{owner} has no {word} for '{part}'; its {word}s: {takes}")
            key, value = names[position], part
        if key in found:
            raise ConfigError(f"{word} '{key}' of {owner} is given twice")
        found[key] = value
    return found
