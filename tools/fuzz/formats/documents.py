"""JSON, lines of JSON, TOML and YAML as trees: keys and values missing, moved, of another type, nested too deeply."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import yaml

from tools.fuzz import hostile
from tools.fuzz.formats.format import Change, Format

Place = tuple[Any, Any]
"""A container, and the key or index of something in it."""

DEPTHS = (3, 50, 400, 20_000)


class Literal(str):
    """Text that is written as it is, where no value of Python is: `1e999`, `*alias`."""


def places(tree: Any) -> Iterator[Place]:
    """Every place of a tree, iteratively: mutated trees can be deeper than Python's stack."""
    waiting = [tree] if isinstance(tree, dict | list) else []
    while waiting:
        holder = waiting.pop()
        items = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        for key, value in items:
            yield holder, key
            if isinstance(value, dict | list):
                waiting.append(value)


def _some_place(tree: Any, rng: Random, wanted: Callable[[Place], bool] = lambda _: True) -> Place | None:
    found = [place for place in places(tree) if wanted(place)]
    return rng.choice(found) if found else None


def _value(rng: Random) -> Any:
    return rng.choice(
        (
            None,
            True,
            False,
            [],
            {},
            [[]],
            {"": {}},
            [None],
            hostile.name(rng),
            hostile.integer(rng),
            rng.choice(hostile.HUGE_INTEGERS[:4]),
            hostile.float_value(rng),
            [hostile.float_value(rng)] * 3,
            "1",
            "8",
            "\ud800",
            {"dtype": "int8"},
            {"per": "channel", "axis": hostile.integer(rng)},
        )
    )


def replace_value(tree: Any, rng: Random) -> None:
    if place := _some_place(tree, rng):
        place[0][place[1]] = _value(rng)


def replace_number(tree: Any, rng: Random) -> None:
    def number(place: Place) -> bool:
        return isinstance(place[0][place[1]], int | float) and not isinstance(place[0][place[1]], bool)

    if place := _some_place(tree, rng, number):
        values = (hostile.integer(rng), rng.choice(hostile.HUGE_INTEGERS), hostile.float_value(rng), Literal("1e999"))
        place[0][place[1]] = rng.choice(values)


def replace_text(tree: Any, rng: Random) -> None:
    if place := _some_place(tree, rng, lambda place: isinstance(place[0][place[1]], str)):
        place[0][place[1]] = hostile.name(rng)


def name_code(tree: Any, rng: Random) -> None:
    """A Python file where a name stands: a target, an observer, a function."""
    named = ("backend", "observer", "data", "metric", "plugins", "passes", "config")
    found = {place[1] for place in places(tree)}
    key = rng.choice([name for name in named if name in found] or [None])
    place = _some_place(tree, rng, lambda place: key is None or place[1] == key)
    if place:
        text = f"in/{hostile.CODE_FILE}" + rng.choice(("", "", ":run"))
        place[0][place[1]] = rng.choice((text, text, [text]))


def value_from_elsewhere(tree: Any, rng: Random) -> None:
    here, there = _some_place(tree, rng), _some_place(tree, rng)
    if here and there:
        here[0][here[1]] = copy.deepcopy(there[0][there[1]])


def remove_entry(tree: Any, rng: Random) -> None:
    if place := _some_place(tree, rng):
        del place[0][place[1]]


def remove_key_everywhere(tree: Any, rng: Random) -> None:
    if place := _some_place(tree, rng, lambda place: isinstance(place[0], dict)):
        for holder, key in [found for found in places(tree) if isinstance(found[0], dict) and found[1] == place[1]]:
            holder.pop(key, None)


def rename_key(tree: Any, rng: Random) -> None:
    if place := _some_place(tree, rng, lambda place: isinstance(place[0], dict)):
        holder, key = place
        holder[rng.choice((hostile.name(rng), str(key).upper(), f"{key} ", f"{key}s"))] = holder.pop(key)


def add_entry(tree: Any, rng: Random) -> None:
    if place := _some_place(tree, rng):
        holder, key = place
        if isinstance(holder, dict):
            holder[hostile.name(rng)] = copy.deepcopy(holder[key]) if rng.random() < 0.5 else _value(rng)
        else:
            holder.insert(key, copy.deepcopy(holder[key]) if rng.random() < 0.5 else _value(rng))


def repeat_list(tree: Any, rng: Random) -> None:
    if place := _some_place(tree, rng, lambda place: isinstance(place[0], list)):
        place[0].extend(copy.deepcopy(place[0]) * rng.choice((1, 100)))


def shorten_list(tree: Any, rng: Random) -> None:
    if place := _some_place(tree, rng, lambda place: isinstance(place[0], list)):
        del place[0][rng.randrange(len(place[0])) :]


def wrap(tree: Any, rng: Random) -> None:
    """A value inside a list or table of one, which is how people misread a format."""
    if place := _some_place(tree, rng):
        value = place[0][place[1]]
        place[0][place[1]] = rng.choice(([value], {"value": value}, [[value]], str(value)[:1000]))


def nest_deeply(tree: Any, rng: Random) -> None:
    if place := _some_place(tree, rng):
        depth = rng.choice(DEPTHS)
        before, after = rng.choice((("[", "]"), ('{"a": ', "}")))
        place[0][place[1]] = Literal(f"{before * depth}0{after * depth}")


def repeat_key(tree: Any, rng: Random) -> None:
    """A key twice in one table, with two values."""
    if place := _some_place(tree, rng, lambda place: isinstance(place[0], dict)):
        place[0][_Twin(str(place[1]))] = _value(rng)


class _Twin(str):
    """A key that is equal to another only once it is written."""

    __slots__ = ()

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def other_root(tree: Any, rng: Random) -> Any:
    return rng.choice(([], [tree], None, 1, "text", {"plan": tree}, {}))


def write_json(tree: Any, *, indent: str = "") -> str:
    """JSON with Literals and twin keys; values too deep for Python's stack exist as Literals alone."""
    if isinstance(tree, Literal):
        return tree
    if isinstance(tree, dict):
        return "{" + ", ".join(f"\n{indent}{json.dumps(str(k))}: {write_json(v)}" for k, v in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(write_json, tree)) + "]"
    return json.dumps(tree, default=str)


def write_toml(tree: Any) -> str:
    """A table as lines `key = value`, with everything below it inline."""
    if not isinstance(tree, dict):
        return f"value = {_inline_toml(tree)}\n"
    return "".join(f"{json.dumps(str(key))} = {_inline_toml(value)}\n" for key, value in tree.items())


def _inline_toml(value: Any) -> str:
    if isinstance(value, Literal):
        return value.replace('{"a": ', "{a = ")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {_inline_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline_toml, value)) + "]"
    if isinstance(value, bool | str):
        return json.dumps(value)
    return "''" if value is None else str(value)


YAML_TRICKS = (
    "bomb: [&a [x,x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a,*a,*a,*a], &c [*b,*b,*b,*b,*b,*b,*b,*b,*b], "
    "&d [*c,*c,*c,*c,*c,*c,*c,*c,*c], &e [*d,*d,*d,*d,*d,*d,*d,*d,*d], &f [*e,*e,*e,*e,*e,*e,*e,*e,*e], "
    "&g [*f,*f,*f,*f,*f,*f,*f,*f,*f], &h [*g,*g,*g,*g,*g,*g,*g,*g,*g]]\n",
    "node: &n {weight: {bits: 8}, again: *n}\n",
    "skip: &s [*s]\n",
    "<<: &m {backend: onnxruntime, <<: *m}\n",
    "backend: !!python/object/apply:os.system ['true']\n",
    "backend: !!binary gibberish\n",
    "when: 2024-02-30\nnumber: 1_000:59:59\n",
    "? [a, b]\n: value\n",
    "? {a: b}\n: value\n",
    "--- {}\n--- {}\n",
    "text: |\n\tindented with a tab\n",
    "key: *nowhere\n",
    "%YAML 9.9\n---\nbackend: x\n",
)

TOML_TRICKS = (
    "[a]\n[a]\n",
    "a.b.c = 1\na.b = 2\n",
    "[[node]]\n[node]\n",
    "when = 2024-02-30\n",
    "time = 25:61:61\n",
    "number = 0x" + "f" * 5000 + "\n",
    "number = " + "9" * 5000 + "\n",
    "a" + ".a" * 5000 + " = 1\n",
    "text = '''open\n",
    "date = 1979-05-27T07:32:00-08:00\n",
    "backend = nan\n",
)


def _with_trick(tricks: tuple[str, ...]) -> Change:
    def add_trick(tree: Any, rng: Random) -> Any:
        if isinstance(tree, dict):
            tree[_TRICK] = tricks[rng.randrange(len(tricks))]
        return None

    return add_trick


_TRICK = "\x00trick"


def _trick_apart(tree: Any) -> tuple[Any, str]:
    if not isinstance(tree, dict):
        return tree, ""
    return {key: value for key, value in tree.items() if key != _TRICK}, str(tree.get(_TRICK, ""))


def _to_toml(tree: Any) -> bytes:
    tree, trick = _trick_apart(tree)
    return (write_toml(tree) + trick).encode("utf-8", "surrogatepass")


def _to_yaml(tree: Any) -> bytes:
    """YAML is written as JSON, which it includes, under the tricks that only YAML knows."""
    tree, trick = _trick_apart(tree)
    if isinstance(tree, dict) and trick:
        lines = "".join(f"{json.dumps(str(key))}: {write_json(value)}\n" for key, value in tree.items())
        return (lines + trick).encode("utf-8", "surrogatepass")
    return write_json(tree).encode("utf-8", "surrogatepass")


def _lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def _to_lines(tree: Any) -> bytes:
    rows = tree if isinstance(tree, list) else [tree]
    return "".join(write_json(row).replace("\n", "") + "\n" for row in rows).encode("utf-8", "surrogatepass")


CHANGES: Mapping[str, Change] = {
    f"tree.{change.__name__}": change
    for change in (
        *(replace_value, replace_value, replace_number, replace_text, name_code, value_from_elsewhere, remove_entry),
        *(remove_key_everywhere, rename_key, add_entry, repeat_list, shorten_list, wrap, nest_deeply, repeat_key),
        other_root,
    )
}

JSON = Format("json", json.loads, CHANGES, lambda tree: write_json(tree).encode("utf-8", "surrogatepass"))
JSON_LINES = Format("jsonl", _lines, CHANGES, _to_lines)
TOML = Format(
    "toml",
    lambda data: tomllib.loads(data.decode()),
    {**CHANGES, "toml.trick": _with_trick(TOML_TRICKS)},
    _to_toml,
)
YAML = Format("yaml", yaml.safe_load, {**CHANGES, "yaml.trick": _with_trick(YAML_TRICKS)}, _to_yaml)
