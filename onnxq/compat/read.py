"""Files of other tools: a Python file that defines the dictionary as its users write it, or JSON, YAML, TOML."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxq.config import read_document
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.plugins import run_file
from onnxq.types.dialect import DIALECTS
from onnxq.types.translation import Translation


def read_dialect(
    name: str, given: str | Path, graph: Graph, backend: str | None = None, *, allow_code: bool = False
) -> Translation:
    """A configuration of another tool, in a file or by its name, for a model and, where it needs one, a target."""
    dialect = DIALECTS.get(name)
    translate = importlib.import_module(dialect.module).translate
    named = dialect.has_names and Path(given).suffix != ".py"
    document = (
        str(given) if named else read_dictionary(Path(given), dialect.variables, dialect.tool, allow_code=allow_code)
    )
    translation: Translation = translate(document, graph, *([backend] if dialect.target else []))
    return translation


def read_dictionary(path: Path, names: Sequence[str], tool: str, *, allow_code: bool = False) -> JsonMapping:
    """The dictionary in a file. A Python file of plain values is read and not run; others need `allow_code`."""
    if path.suffix != ".py":
        return read_document(path)[0]
    if not path.is_file():
        raise ConfigError(f"no {tool} configuration file at {path}")
    tree = _parsed(path, tool)
    defined = _plain_values(tree)
    if defined is None and not allow_code:
        raise ConfigError(
            f"{path} computes its values, and a configuration file does not run code by itself: write them as plain "
            f"values ({names[0]} = {{...}}), or say --allow-code if you trust the file"
        )
    if defined is None:
        defined = vars(run_file(path, f"{tool} configuration"))
    _check_keys_stand_once(path, tree)
    for name in names:
        found = defined.get(name)
        if isinstance(found, Mapping):
            return found
    raise ConfigError(f"{path} defines none of {', '.join(names)} as a dictionary: give it one of these names")


def _parsed(path: Path, tool: str) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # what the parser has for NUL and depth
        raise ConfigError(f"{tool} configuration {path}: {type(error).__name__}: {error}") from None


def _plain_values(tree: ast.Module) -> JsonObject | None:
    """Name -> value of a file that says names = plain values and nothing else; None where it has to be run.

    Imports may stand in it: what they bring plays no part in plain values.
    """
    values: JsonObject = {}
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # a text that says what the file is
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            return None
        try:
            found = ast.literal_eval(value)
        except (ValueError, TypeError, RecursionError):
            return None
        for target in targets:
            if not isinstance(target, ast.Name):
                return None
            values[target.id] = found
    return values


def _check_keys_stand_once(path: Path, tree: ast.Module) -> None:
    """Python keeps the last of two equal keys in a dictionary; what the first one said would be lost in silence."""
    for node in ast.walk(tree):
        seen: set[str] = set()
        for key in node.keys if isinstance(node, ast.Dict) else ():
            written = "" if key is None else ast.unparse(key)
            if written in seen:
                raise ConfigError(
                    f"{path}:{getattr(key, 'lineno', 0)}: the key {written} stands twice in one dictionary, and Python "
                    "keeps the last alone: keep one of them, or give the other the name that it should have"
                )
            if written:
                seen.add(written)
