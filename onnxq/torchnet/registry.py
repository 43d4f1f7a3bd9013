"""Operators by domain, name and opset: `@op("LeakyRelu", since=6)` above a function that makes the code of a node.

A builder is called once for each node, when the net is made. It reads the attributes from its `Call` and returns the
function that runs at every step, which takes the node's inputs (None for one that was left out) and returns its output,
or a tuple of them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxq.errors import ConfigError, UnsupportedError, did_you_mean
from onnxq.plugins import load_installed

if TYPE_CHECKING:
    from onnxq.torchnet.call import Call

Kernel = Callable[..., Any]
"""Computes a node in torch: from tensors in the order of its inputs, None for those left out, to its outputs."""
Builder = Callable[["Call"], Kernel]


@dataclass(frozen=True)
class Definition:
    """A builder, valid for the versions `since` .. `until` of its domain (None: up to the newest)."""

    domain: str
    name: str
    since: int
    until: int | None
    builder: Builder

    def covers(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


class Operators:
    """All definitions; the newest that covers a version is the one that counts."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._loaded = False
        self._definitions: dict[tuple[str, str], list[Definition]] = {}

    def add(self, definition: Definition) -> None:
        known = self._definitions.setdefault((definition.domain, definition.name), [])
        for other in known:
            if other.since == definition.since:
                if _home(other.builder) == _home(definition.builder):
                    known.remove(other)
                    break
                raise ConfigError(
                    f"operator {shown(definition.domain, definition.name)} is registered twice since version "
                    f"{definition.since}: by {'.'.join(_home(other.builder))} and by "
                    f"{'.'.join(_home(definition.builder))}; give the second another `since`"
                )
        known.append(definition)
        known.sort(key=lambda item: item.since, reverse=True)

    def find(self, domain: str, name: str, version: int) -> Definition | None:
        self._load()
        for definition in self._definitions.get((domain, name), ()):
            if definition.covers(version):
                return definition
        return None

    def get(self, domain: str, name: str, version: int, node: str) -> Definition:
        """The definition for a node, or an error that says how to write one."""
        found = self.find(domain, name, version)
        if found is not None:
            return found
        known = self._definitions.get((domain, name), ())
        if known:
            ranges = ", ".join(f"{item.since}..{'' if item.until is None else item.until}" for item in known)
            why = f": there is one for versions {ranges} of the domain only."
        else:
            why = f" at all.{did_you_mean(name, self.names(domain))}"
        raise UnsupportedError(
            f"node '{node}': operator {shown(domain, name)} of opset {version} has no torch implementation{why} "
            f'Write one into a file of yours: @onnxq.torchnet.op("{name}", since={version}'
            + (f', domain="{domain}"' if domain else "")
            + ") above a function that takes the Call and returns a function of the inputs (docs/qat.md, 'Your own "
            "operators'), and name the file with --plugin, or import it. What comes before the node can be trained "
            "without it: outputs=[...] of prepare and to_torch"
        )

    def names(self, domain: str = "") -> list[str]:
        """The names of the operators of a domain."""
        self._load()
        return sorted(name for home, name in self._definitions if home == domain)

    def definitions(self) -> list[Definition]:
        self._load()
        return [item for key in sorted(self._definitions) for item in self._definitions[key]]

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # before the work: modules that are loaded now may look something up
        try:
            package = importlib.import_module(self._package)
            for module in sorted(item.name for item in pkgutil.iter_modules(package.__path__)):
                importlib.import_module(f"{self._package}.{module}")
            load_installed()
        except BaseException:
            self._loaded = False  # the next who asks is told the same, and not that an operator is unknown
            raise


def shown(domain: str, name: str) -> str:
    return f"{domain}::{name}" if domain else name


def _home(builder: Builder) -> tuple[str, str]:
    return getattr(builder, "__module__", ""), getattr(builder, "__qualname__", repr(builder))


OPERATORS = Operators("onnxq.torchnet.ops")
"""All operators that torch computes; `@op("Name", since=opset)` adds one."""


def op(*names: str, since: int = 1, until: int | None = None, domain: str = "") -> Callable[[Builder], Builder]:
    """Register the builder of one or several operators for the versions `since` .. `until` of a domain."""

    def register(builder: Builder) -> Builder:
        for name in names:
            OPERATORS.add(Definition(domain, name, since, until, builder))
        return builder

    return register
