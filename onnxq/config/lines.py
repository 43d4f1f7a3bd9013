"""Which line of a configuration file says what, so that every decision can name the line that made it.

A path is the way to a value: ("node", "/layer1/Conv", "weight", "bits"). Tables of a list have their number in it, as
text: ("layers", "0", "name"). A text in a list has an entry too, ("skip", "stem.conv"), its first line if it is there
twice.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Literal

import yaml

Path = tuple[str, ...]
Kind = Literal["toml", "yaml", "json"]


def line_numbers(text: str, kind: Kind) -> dict[Path, int]:
    """Path -> line, counted from 1, of a text that the parser of its kind has accepted.

    Keys of an inline table in TOML have the line of the key that holds the table.
    """
    if kind == "toml":
        return _toml_lines(text)
    lines: dict[Path, int] = {}
    if kind == "json":
        _JsonWalk(text, lines).value(())
        return lines
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is not None:
        _walk_yaml(root, (), lines, ())
    return lines


# ---- YAML ------------------------------------------------------------------------------------------------------------

_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"


def _walk_yaml(node: yaml.Node, path: Path, lines: dict[Path, int], above: tuple[yaml.Node, ...]) -> None:
    """`above` are the nodes on the way here: an anchor may hold an alias of itself."""
    if any(node is other for other in above):
        return
    if isinstance(node, yaml.MappingNode):
        # What is merged in (<<: *base) comes first, so that the table's own keys replace it.
        for key, value in sorted(node.value, key=lambda pair: pair[0].tag != _MERGE):
            if key.tag == _MERGE:
                for merged in reversed(value.value) if isinstance(value, yaml.SequenceNode) else [value]:
                    _walk_yaml(merged, path, lines, (*above, node))
            elif isinstance(key, yaml.ScalarNode):
                lines[(*path, key.value)] = key.start_mark.line + 1
                _walk_yaml(value, (*path, key.value), lines, (*above, node))
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            if isinstance(item, yaml.ScalarNode) and item.tag == _TEXT:
                lines.setdefault((*path, item.value), item.start_mark.line + 1)
            elif isinstance(item, yaml.MappingNode):
                lines[(*path, str(number))] = item.start_mark.line + 1
                _walk_yaml(item, (*path, str(number)), lines, (*above, node))
            else:
                _walk_yaml(item, path, lines, (*above, node))


# ---- JSON ------------------------------------------------------------------------------------------------------------

_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class _JsonWalk:
    """Goes once over the tokens. (YAML's parser is no help: it takes neither tabs nor long keys.)"""

    def __init__(self, text: str, lines: dict[Path, int]) -> None:
        self._lines = lines
        self._tokens = [(found.group(), line) for found, line in _numbered(_JSON_TOKEN, text)]
        self._next = 0

    def _take(self) -> tuple[str, int]:
        self._next += 1
        return self._tokens[self._next - 1]

    def _ends(self, bracket: str) -> bool:
        """Whether the list or table is over; takes its bracket, or the comma in front of its next entry."""
        if self._tokens[self._next][0] not in (bracket, ","):
            return False
        return self._take()[0] == bracket

    def value(self, path: Path) -> None:
        """Take one value."""
        token, _ = self._take()
        if token == "{":
            while not self._ends("}"):
                word, line = self._take()
                inside = (*path, json.loads(word))
                self._lines[inside] = line
                self._take()  # the colon
                self.value(inside)
        elif token == "[":
            number = 0
            while not self._ends("]"):
                self._item(path, number)
                number += 1

    def _item(self, path: Path, number: int) -> None:
        token, line = self._tokens[self._next]
        if token == "{":
            path = (*path, str(number))
            self._lines[path] = line
        elif token.startswith('"'):
            self._lines.setdefault((*path, json.loads(token)), line)
        self.value(path)


# ---- TOML ------------------------------------------------------------------------------------------------------------

_TOML_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'|#[^\n]*|[\[\]{}]|\n",
    re.DOTALL,
)
"""What can hide the end of a line, or end it. A text in three quotes may end in two quotes of its own."""


def _toml_lines(text: str) -> dict[Path, int]:
    lines: dict[Path, int] = {}
    table: Path = ()
    counts: dict[Path, int] = {}  # tables so far in each list of tables
    for statement, line, texts in _statements(text):
        parsed = tomllib.loads(statement)
        if not statement.lstrip().startswith("["):
            _note(parsed, table, line, texts, lines)
            continue
        table, is_list = (), False
        while parsed:
            ((name, inner),) = parsed.items()
            table = (*table, name)
            lines.setdefault(table, line)
            is_list = isinstance(inner, list)
            parsed = {} if is_list else inner
            if not is_list and parsed and table in counts:
                table = (*table, str(counts[table] - 1))
        if is_list:
            counts[table] = counts.get(table, 0) + 1
            table = (*table, str(counts[table] - 1))
            lines[table] = line
    return lines


def _note(value: Any, path: Path, line: int, texts: dict[str, int], lines: dict[Path, int]) -> None:
    """Give everything inside a value the line of its statement, and texts of lists their own."""
    if isinstance(value, dict):
        for key, inner in value.items():
            lines.setdefault((*path, key), line)
            _note(inner, (*path, key), line, texts, lines)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, str):
                lines.setdefault((*path, item), texts.get(item, line))
            elif isinstance(item, dict):
                lines.setdefault((*path, str(number)), line)
                _note(item, (*path, str(number)), line, texts, lines)
            else:
                _note(item, path, line, texts, lines)


def _statements(text: str) -> Iterator[tuple[str, int, dict[str, int]]]:
    """(statement, its first line, the texts inside its brackets with theirs); blank lines and comments are left out."""
    text = text.replace("\r\n", "\n") + "\n"
    depth, begin, first, texts = 0, 0, 1, dict[str, int]()
    for found, line in _numbered(_TOML_TOKEN, text):
        token = found.group()
        if token in ("[", "{"):
            depth += 1
        elif token in ("]", "}"):
            depth -= 1
        elif token[0] in "\"'" and depth:
            texts.setdefault(tomllib.loads(f"text = {token}")["text"], line)
        elif token == "\n" and depth == 0:
            statement = text[begin : found.start()]
            if statement.strip() and not statement.lstrip().startswith("#"):
                yield statement, first, texts
            begin, first, texts = found.end(), line + 1, {}


def _numbered(pattern: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], int]]:
    """The tokens of a text, each with its line."""
    at, line = 0, 1
    for found in pattern.finditer(text):
        line += text.count("\n", at, found.start())
        at = found.start()
        yield found, line
