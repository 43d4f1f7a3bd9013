"""Writes the tables in README.md and docs/ from the registries, the configuration and the command line they describe.

A table stands between the lines `<!-- table: NAME -->` and `<!-- end -->`.

Usage: python tools/readme_tables.py [--check]
With --check nothing is written; files whose tables are out of date are printed and make the exit code 1.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import typer
from pydantic.fields import FieldInfo

from onnxq.cli import catalogue
from onnxq.cli.app import app
from onnxq.config import Config, FormatChange, WeightChange

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def documents(root: Path) -> list[Path]:
    """The files that may hold tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def updated(text: str) -> str:
    """The text of a document with all its tables made anew; a table of an unknown name is an error."""
    return BLOCK.sub(lambda found: found[1] + table(found[2]) + found[3], text)


def table(name: str) -> str:
    if name.startswith("options-"):
        return options_table(name.removeprefix("options-"))
    if name not in TABLES:
        raise SystemExit(f"unknown table '{name}'; known: {', '.join(TABLES)}, options-COMMAND")
    return TABLES[name]()


def backends_table() -> str:
    head = [
        "files beside `model.onnx`" if column.startswith("files") else column for column in catalogue.BACKEND_COLUMNS
    ]
    rows = []
    for names, *formats, files, readers in catalogue.backend_rows():
        rows.append([_quoted(names), *formats, _quoted(files), readers])
    return markdown(head, rows)


def _quoted(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", ") if name)


def backend_options_table() -> str:
    rows = []
    for entry in catalogue.backends():
        choices = [
            f"`{text.partition(': ')[0].replace('|', ' / ')}` {text.partition(': ')[2]}" for text in entry["options"]
        ]
        rows.append([f"`{entry['name']}`", entry["summary"], "<br>".join(choices) or "none"])
    return markdown(("backend", "what it is for", "options, as in `-b name:option=value`"), rows)


def observers_table() -> str:
    rows = [
        [f"`{e['name']}`", _joined(e["parameters"]) or "none", e["collects"], e["summary"]]
        for e in catalogue.observers()
    ]
    return markdown(("observer", "parameters", "collects", "in a sentence"), rows)


def passes_table() -> str:
    rows = [[f"`{e['name']}`", _joined(e["backends"]), e["summary"]] for e in catalogue.passes()]
    return markdown(("pass", "run by", "what it does"), rows)


def commands_table() -> str:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    rows = [[f"`onnxq {name}`", _first_line(command.help)] for name, command in commands.items()]
    return markdown(("command", "what it does"), rows)


def options_table(command_name: str) -> str:
    command = typer.main.get_command(app).commands[command_name]  # type: ignore[attr-defined]
    rows = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            label = f"`{(parameter.metavar or parameter.name).upper()}`"
        else:
            label = ", ".join(f"`{option}`" for option in sorted(parameter.opts, key=len))
        text = parameter.help or ""
        if parameter.required:
            text += " Required."
        elif parameter.param_type_name == "option" and parameter.default not in (None, False):
            text += f" Default: `{parameter.default}`."
        rows.append([label, text])
    return markdown(("argument or option", "meaning"), rows)


def config_table() -> str:
    return _fields_table(Config.model_fields)


def format_table() -> str:
    return _fields_table(WeightChange.model_fields)


def _fields_table(fields: dict[str, FieldInfo]) -> str:
    rows = []
    for name, field in fields.items():
        default = field.default
        nested = isinstance(default, FormatChange)
        text = "the table below" if nested else (field.description or FORMAT_WORDS[name])
        shown = UNSET.get(name, "the backend's") if default is None or nested else f"`{json.dumps(default)}`"
        rows.append([f"`{name}`", _type_text(field), shown, text])
    return markdown(("key", "type", "default", "meaning"), rows)


def _type_text(field: FieldInfo) -> str:
    """The annotation as a reader of a configuration file would say it."""
    kind = field.annotation
    found = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    for pattern, word in TYPE_WORDS:
        found = re.sub(pattern, word, found)
    return found


TYPE_WORDS = (
    (r" \| None$", ""),
    (r"typing\.Optional\[(.*)\]$", r"\1"),
    (r"typing\.Literal\[(.*)\]$", r"\1"),
    (r"tuple\[str, \.\.\.\]", "list of text"),
    (r"'(\w+)', '(\w+)'", r"`\1` or `\2`"),
    (r"^(Format|Weight)Change$", "table"),
    (r"dict\[str, typing\.Any\]", "table"),
    (r"^str \| ", "text or "),
    (r"^str$", "text"),
    (r"^int$", "whole number"),
    (r"^float$", "number"),
    (r"^bool$", "true or false"),
)

FORMAT_WORDS = {
    "symmetric": "zero point 0, or a zero point of its own",
    "narrow_range": "drop the lowest value of a signed format: int8 becomes -127 .. 127",
    "power_of_two": "round every scale up to a power of two",
    "rounding": "half_even, half_up, half_away, half_to_zero or floor",
}
"""What the fields without a description of their own mean."""

UNSET = {
    "samples": "all",
    "preprocess": "from the model's input",
    "workers": "every core",
    "memory_limit": "a quarter of the free memory",
    "provider": "the CPU",
}
"""What it means to leave out a key for which the backend has no choice."""

TABLES: dict[str, Callable[[], str]] = {
    "backends": backends_table,
    "backend-options": backend_options_table,
    "commands": commands_table,
    "config": config_table,
    "format": format_table,
    "observers": observers_table,
    "passes": passes_table,
}


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _joined(values: object) -> str:
    return ", ".join(f"`{value}`" for value in values) if isinstance(values, list) else str(values)


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def main(arguments: Sequence[str]) -> int:
    if not set(arguments) <= {"--check"}:
        print("usage: python tools/readme_tables.py [--check]", file=sys.stderr)
        return 2
    stale = []
    for path in documents(ROOT):
        before = path.read_text(encoding="utf-8")
        after = updated(before)
        if before != after:
            stale.append(path)
            if "--check" not in arguments:
                path.write_text(after, encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date' if '--check' in arguments else 'updated'}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
