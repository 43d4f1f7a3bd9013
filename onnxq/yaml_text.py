"""YAML texts as values, within limits: a key that stands twice is an error, and so is a text that means too much.

Text that somebody else has written can be small and mean a great deal: aliases that hold aliases.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from onnxq.json_file import DEEPEST, TWICE, too_deep

MOST_VALUES = 300_000
"""Values of a YAML text, those that aliases stand for counted each time."""

_MERGE = "tag:yaml.org,2002:merge"


class YamlError(ValueError):
    """What is wrong with a text, and the line where one is to blame."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; how much its aliases stand for is found before any of them is followed."""
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(text for text in (error.context, error.problem) if text)
        raise YamlError(said, None if mark is None else mark.line + 1) from None
    except RecursionError:
        raise YamlError(too_deep()) from None
    except (ValueError, yaml.YAMLError) as error:  # a date that no calendar has is a ValueError
        raise YamlError(str(error)) from None
    finally:
        if loader is not None:
            loader.dispose()


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


def _inside(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
