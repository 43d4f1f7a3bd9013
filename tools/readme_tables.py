"""Writes the tables in README.md and docs/ from the registries, the configuration and the command line they describe.

A table stands between the lines `<!-- table: NAME -->` and `<!-- end -->`. The schema of the configuration,
docs/config-schema.json, is written too.

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
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from onnxq.cli import catalogue
from onnxq.cli.app import app
from onnxq.config import Config, InputSettings, NodeSettings, QuantizerSettings, config_schema
from onnxq.config.option import options_of
from onnxq.pipeline.vendor_steps import vendor_steps
from onnxq.targets import BACKENDS
from onnxq.types import Backend
from onnxq.types.fake_quantizers import ALIASES, KINDS, Kind
from onnxq.types.overrides import Treatment

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = Path("docs", "config-schema.json")
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def documents(root: Path) -> list[Path]:
    """The files that may hold tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md")), *sorted((root / "docs/targets").glob("*.md"))]


def updated(text: str) -> str:
    """The text of a document with all its tables made anew; a table of an unknown name is an error."""
    return BLOCK.sub(lambda found: found[1] + table(found[2]) + found[3], text)


def table(name: str) -> str:
    if name.startswith("options-"):
        return options_table(name.removeprefix("options-"))
    if name.startswith("steps-"):
        return steps_list(name.removeprefix("steps-"))
    if name not in TABLES:
        raise SystemExit(f"unknown table '{name}'; known: {', '.join(TABLES)}, options-COMMAND, steps-TARGET")
    return TABLES[name]()


def backends_table() -> str:
    head = [
        "files beside `model.onnx`" if column.startswith("files") else column for column in catalogue.BACKEND_COLUMNS
    ]
    rows = []
    for row, names in catalogue.backend_rows().items():
        rows.append([_quoted(names), row.activations, row.weights, row.biases, _quoted(row.files), row.read_by])
    return markdown(head, rows)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def backend_options_table() -> str:
    rows = []
    for name, backend in BACKENDS.items():
        choices = [f"`{option.name}={' / '.join(option.values)}` {option.summary}" for option in backend.options]
        rows.append([f"`{name}`", backend.summary, "<br>".join(choices) or "none"])
    return markdown(("backend", "what it is for", "options, as in `-b name:option=value`"), rows)


def improvements_table() -> str:
    rows = [
        [_named(e), _joined(e["arguments"]) or "none", e["effort"], e["needs"], e["summary"], e["paper"]]
        for e in catalogue.improvements()
    ]
    return markdown(("improvement", "arguments", "effort", "needs", "what it does", "paper"), rows)


def _named(entry: catalogue.Entry) -> str:
    others = _joined(entry["other names"])
    return f"`{entry['name']}`" + (f"<br>also {others}" if others else "")


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


def steps_list(target: str) -> str:
    """What the vendor's tools do with the files of a target, each line as a block to copy."""
    parts = []
    for step in vendor_steps(BACKENDS.get(target), "model", shapes="[[1,3,224,224]]"):
        kind = "python" if "\n" in step["line"] or step["line"].startswith("session =") else "bash"
        parts.append(f"{step['what']}:\n\n```{kind}\n{step['line']}\n```\n")
    return "\n" + "\n".join(parts) + "\n"


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
    rows = []
    options = options_of(Config)
    for name, field in Config.model_fields.items():
        default = field.default
        if isinstance(default, BaseModel):
            shown = "the backend's"
        elif default in ((), {}):
            shown = "none"
        else:
            unset = options[name].unset if name in options else ""
            shown = (unset or "the backend's") if default is None else f"`{json.dumps(default)}`"
        meaning = (field.description or "").replace("<", "&lt;")
        rows.append([f"`{name}`", _type_text(field), shown, meaning])
    return markdown(("key", "type", "default", "meaning"), rows)


def treatment_table() -> str:
    """What a placement holds of the settings of its quantizer, in a plan as text where a file may have a table."""
    rows = []
    for key, default in vars(Treatment()).items():
        meaning = (QuantizerSettings.model_fields[key].description or "").partition(", or a table")[0]
        rows.append([f"`{key}`", f"`{json.dumps(default)}`", meaning])
    return markdown(("key", "where it is left out", "what it holds"), rows)


def _level_table(model: type[BaseModel]) -> str:
    """Keys without a default of their own: what is left out stays as the next wider level has it."""
    rows = [[f"`{name}`", _type_text(field), field.description] for name, field in model.model_fields.items()]
    return markdown(("key", "type", "meaning"), rows)


def fake_quantizers_table() -> str:
    rows = []
    for kind in KINDS.values():
        others = [name for name, known in ALIASES.items() if known == kind.name]
        rows.append([f"`{kind.name}`", kind.summary, kind.untrained, _demands(kind), _joined(others) or "none"])
    head = ("name", "in training", "without training", "for; its arguments; what it sets", "in other tools")
    return markdown(head, rows)


def _demands(kind: Kind) -> str:
    """The tensors it is for, its arguments, and what it sets of the format."""
    where = {("weight",): "weights", ("activation", "output"): "activations"}.get(kind.roles, "all")
    arguments = [f"`{item.name}` {item.default:g} ({item.allowed})" for item in kind.arguments]
    implied = [f"`{key} = {json.dumps(value)}`" for key, value in kind.implied.items()]
    return "; ".join([where, *arguments, *implied])


def limits_table() -> str:
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, backend in BACKENDS.items():
        rows.setdefault(_limits(backend), []).append(name)
    head = ("target", "types", "zero points", "scale per channel", "scales", "rounding", "biases")
    return markdown(head, [[_joined(names), *row] for row, names in rows.items()])


def _limits(backend: Backend) -> tuple[str, ...]:
    limits = backend.limits
    kinds = [kind + (" (weights)" if kind in limits.weight_only_dtypes else "") for kind in limits.dtypes]
    if limits.steps:
        kinds.append("with " + ", ".join(f"{low} .. {high}" for low, high in limits.steps))
    zero = "0" if limits.zero_point_zero else "0 for weights" if limits.weights_symmetric else "any"
    channels = [
        *([] if limits.weights_per_tensor else ["weights"]),
        *([] if limits.activations_per_tensor else ["activations"]),
    ]
    known = limits.roundings or (("half_even",) if backend.rounding_in_files == "exact" else ())
    weights_only = backend.rounding_in_files == "exact" and backend.weight_storage == "integer"
    rounding = ", ".join(known) or "any"
    if weights_only and not limits.roundings:
        rounding += "; weights: any"
    elif weights_only and len(known) > 1:
        rounding = f"half_even; weights: {rounding}"
    bias = "float or quantized" if limits.bias_quantized else "float"
    scales = "powers of two" if limits.power_of_two else "any"
    return ", ".join(kinds), zero, ", ".join(channels) or "no", scales, rounding, bias


def _type_text(field: FieldInfo) -> str:
    """The annotation as a reader of a configuration file would say it."""
    kind = field.annotation
    found = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    for pattern, word in TYPE_WORDS:
        found = re.sub(pattern, word, found)
    return found


TYPE_WORDS = (
    (r"typing\.Annotated\[bool, Strict\(strict=True\)\]", "bool"),
    (r" \| None$", ""),
    (r"typing\.Optional\[(.*)\]$", r"\1"),
    (r"typing\.Literal\[(.*)\]$", r"\1"),
    (r"tuple\[tuple\[str, \.\.\.\], \.\.\.\]", "list of lists of text"),
    (r"tuple\[str, \.\.\.\]", "list of text"),
    (r"tuple\[int \| str, \.\.\.\]", "list of numbers and text"),
    (r"'(\w+)', '(\w+)', '(\w+)'", r"`\1`, `\2` or `\3`"),
    (r"'(\w+)', '(\w+)'", r"`\1` or `\2`"),
    (r"^dict\[str, onnxq.*\]$", "table of tables"),
    (r"^(typing\.)?Any$", "number or list"),
    (r"^QuantizerSettings$", "table"),
    (r"dict\[str, typing\.Any\]", "table"),
    (r"^str \| ", "text or "),
    (r"^text or int$", "text or number"),
    (r"^str$", "text"),
    (r"^int$", "whole number"),
    (r"^float$", "number"),
    (r"^bool$", "true or false"),
)

TABLES: dict[str, Callable[[], str]] = {
    "backends": backends_table,
    "backend-options": backend_options_table,
    "commands": commands_table,
    "config": config_table,
    "fake-quantizers": fake_quantizers_table,
    "improvements": improvements_table,
    "input-settings": lambda: _level_table(InputSettings),
    "limits": limits_table,
    "node-settings": lambda: _level_table(NodeSettings),
    "quantizer-settings": lambda: _level_table(QuantizerSettings),
    "observers": observers_table,
    "passes": passes_table,
    "treatment": treatment_table,
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
    wanted = {path: updated(path.read_text(encoding="utf-8")) for path in documents(ROOT)}
    wanted[ROOT / SCHEMA] = json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n"
    stale = []
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path)
            if "--check" not in arguments:
                path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date' if '--check' in arguments else 'updated'}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
