"""TOML, YAML and JSON files read as keys and values; a key that stands twice is an error, not the last of the two.

Text that somebody else has written can be small and mean a great deal: aliases of YAML that hold aliases, tables
inside of tables. What is read has limits that no configuration comes near, and beyond them is an error.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import yaml

from onnxq.errors import ConfigError
from onnxq.json_file import DEEPEST, TWICE, check_depth, parse_json, read_text, too_deep

_KINDS = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
_MERGE = "tag:yaml.org,2002:merge"

LONGEST = 4_000_000
"""Letters of a file; PyYAML needs a minute for as many."""

MOST_VALUES = 300_000
"""Values of a YAML file, those that aliases stand for counted each time."""


def read_document(path: Path) -> tuple[dict[str, Any], Any]:
    """Keys and values of a TOML, YAML or JSON file, and which of the three it is."""
    kind = _KINDS.get(path.suffix)
    if not path.is_file():
        raise ConfigError(f"no configuration file at {path}")
    if kind is None:
        raise ConfigError(f"{path}: a configuration is a .toml, .yaml, .yml or .json file")
    text = read_text(path, "configuration file", ConfigError)
    if len(text) > LONGEST:
        raise ConfigError(f"{path} cannot be read: it has {len(text):,} letters, a configuration at most {LONGEST:,}")
    data: Any
    try:
        data = _LOADERS[kind](text)
        check_depth(data)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        said = ", ".join(text for text in (error.context, error.problem) if text)
        raise ConfigError(f"{path}{line}: cannot be read: {said}") from None
    except RecursionError:
        raise ConfigError(f"{path} cannot be read: {too_deep()}") from None
    except (ValueError, yaml.YAMLError) as error:  # a date that no calendar has is a ValueError
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if data is None:  # an empty YAML file
        return {}, kind
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold keys and values, it holds a {type(data).__name__}")
    return data, kind


class _Loader(yaml.SafeLoader):
    """PyYAML takes the last of two equal keys and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=TWICE.format(key=key.value), problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def _load_yaml(text: str) -> Any:
    """The value of a YAML text; how much its aliases stand for is found before any of them is followed."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _count(root: yaml.Node) -> None:
    """Refuse a tree that is too large or too deep; each node is looked at once, however many aliases it has."""
    sizes: dict[int, int] = {}  # values below a node, itself included
    levels: dict[int, int] = {}
    begun: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting[-1]
        inner = _inside(node)
        if id(node) not in begun:
            begun.add(id(node))
            for child in inner:
                if id(child) in begun and id(child) not in sizes:
                    raise _refused("an alias stands inside of what it is an alias of", child)
                if id(child) not in sizes:
                    waiting.append(child)
            continue
        waiting.pop()
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in inner)
        levels[id(node)] = max((levels[id(child)] for child in inner), default=0) + bool(inner)
        if levels[id(node)] > DEEPEST:
            raise _refused(too_deep(), node)
        if sizes[id(node)] > MOST_VALUES:
            raise _refused(f"with its aliases written out it holds more than {MOST_VALUES:,} values", node)


def _refused(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def load_toml(text: str) -> Any:
    """The value of a TOML text; a key of many parts is found before tomllib takes time and memory by their square."""
    if _LONG_KEY.search(text):
        raise ValueError(too_deep())
    return tomllib.loads(text)


_LONG_KEY = re.compile(
    r"(?:(?:(?<![\w-])[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+){%d}" % DEEPEST  # noqa: UP031
)


def _inside(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


_LOADERS: dict[str, Callable[[str], Any]] = {
    "toml": load_toml,
    "yaml": _load_yaml,
    "json": lambda text: parse_json(text, constants=True),  # a value of an input may be NaN
}
