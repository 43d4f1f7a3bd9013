"""A commented configuration for a model and a target: every key that applies, with its meaning and its default.

Only the target is said. Every other setting is a comment without a space behind its mark (`#effort = 1`), so that it is
told from prose, and stands at its full path, so that it can be said at any place of the file. What keys mean is what
their models of settings say.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from onnxq.config.option import options_of
from onnxq.config.quantizers import NodeSettings, QuantizerSettings
from onnxq.config.resolve import resolve
from onnxq.config.resolved import resolved_settings
from onnxq.config.settings import Config
from onnxq.config.toml_text import toml_key, toml_line
from onnxq.escapes import one_line
from onnxq.types import Backend

WIDTH = 110
"""Columns of prose."""

EXAMPLES = 5
"""Layers and operators that are named."""

HELD: Mapping[str, Callable[[Backend], Sequence[str]]] = {
    "skip_passes": lambda backend: backend.passes,
    "skip_ties": lambda backend: backend.tied,
    "skip_refinements": lambda backend: backend.refinements,
    "skip_emitters": lambda backend: backend.emitters[1:],
    "skip_simulations": lambda backend: backend.simulations,
}
"""Key that leaves out something of a target -> what the target has of it; the model itself is always written."""

MEASURED_HERE = ("optimize_for", "portable")
"""Keys for targets that onnxruntime runs."""

OF_ACTIVATIONS = ("activation", "input", "output", "observer", "tensor")
"""Keys for targets that quantize more than weights; the example for tensors is an input of the model."""

OF_A_REPEATED_RUN = ("skip_steps",)
"""Keys that config.json of a run says, and nobody else."""


@dataclass(frozen=True)
class ModelInput:
    """An input of a model; sizes are numbers or names, "?" where nothing is said, and None for an unknown rank."""

    name: str
    kind: str
    shape: tuple[int | str, ...] | None


@dataclass(frozen=True)
class ModelLayer:
    """A node worth an example, and what makes it so."""

    name: str
    remark: str


@dataclass(frozen=True)
class ModelParts:
    """What a configuration can name of a model: inputs, its largest layers, and operators with their counts."""

    file: str
    inputs: Sequence[ModelInput]
    layers: Sequence[ModelLayer]
    operators: Mapping[str, int]


def config_template(target: str, backend: Backend, model: ModelParts, command: str) -> str:
    """The text of a TOML file; `target` is what `backend` was called by, `command` the line that runs it."""
    return "".join(f"{line}\n" for line in _Template(target, backend, model, command).lines())


class _Template:
    def __init__(self, target: str, backend: Backend, model: ModelParts, command: str) -> None:
        self._target, self._backend, self._model, self._command = target, backend, model, command
        self._defaults = resolved_settings(resolve(Config(), backend), Config(), target=target)
        self._unset = {key: option.unset for key, option in options_of(Config).items()}
        self._examples: Mapping[str, Callable[[], Iterator[str]]] = {
            "backend": self._backend_lines,
            "data": lambda: iter(['#data = "DATA"']),
            "inputs": self._input_lines,
            "op": self._operator_lines,
            "node": self._node_lines,
            "tensor": self._tensor_lines,
        }

    def lines(self) -> Iterator[str]:
        yield from _prose(
            f"Configuration of onnxq for {self._model.file} and the target {self._target}. Lines with a # and no space "
            "behind it are settings with their defaults (those of inputs, op, node and tensor are examples): take the "
            "# away and change them. Run it with:"
        )
        yield f"#   {one_line(self._command)}"
        described = False
        for key, field in Config.model_fields.items():
            if not self._applies(key):
                continue
            yield ""
            if isinstance(field.default, QuantizerSettings) and not described:
                described = True
                yield from _fields(QuantizerSettings, "Quantizers, in every table of them, have these fields:")
                yield ""
            yield from _prose(f"{field.description or key}{self._choice(key)}")
            yield from self._examples[key]() if key in self._examples else self._setting(key, field.default)

    def _applies(self, key: str) -> bool:
        if key in MEASURED_HERE:
            return self._backend.runs_in_onnxruntime
        if key in HELD:
            return bool(HELD[key](self._backend))
        if key in OF_ACTIVATIONS:
            return self._backend.scheme.activation is not None
        return key not in OF_A_REPEATED_RUN

    def _choice(self, key: str) -> str:
        """What there is to choose from."""
        return f": of {', '.join(HELD[key](self._backend))}" if key in HELD else ""

    def _setting(self, key: str, default: Any) -> Iterator[str]:
        """A key with its default; one that has none, and is left to the run, without a value."""
        value = self._defaults.get(key, default)
        observed = {"observer": self._backend.activation_observer, "weight_observer": self._backend.weight_observer}
        if key in observed:
            yield f"#{toml_line((key,), observed[key])}  # one that is said holds: no effort tries others"
        elif isinstance(value, QuantizerSettings):
            yield f"#{toml_key((key, 'dtype'))} =  # by default: {self._format_of(key)}"
        elif isinstance(value, Mapping) and value:
            for name, inner in value.items():
                yield f"#{toml_line((key, name), inner)}"
        elif value is None:
            yield f"#{toml_key((key,))} =  # by default: {self._unset.get(key) or 'the choice of the target'}"
        else:
            yield f"#{toml_line((key,), value)}"

    def _format_of(self, role: str) -> str:
        """What quantizers have of which no format is spelt out."""
        if role in ("input", "output"):
            return "that of other computed tensors"
        held = getattr(self._backend.scheme, role)
        return "float" if held is None else f"{held}, where the target's rules have no other"

    def _backend_lines(self) -> Iterator[str]:
        yield toml_line(("backend",), self._target)
        if not self._backend.options:
            return
        yield from _prose("its options, behind a colon and with commas between them:")
        for option in self._backend.options:
            values = "|".join(option.values)
            yield from _item(f"{option.name}={values}", f"{option.summary} (here {self._backend.option(option.name)})")

    def _input_lines(self) -> Iterator[str]:
        for one in self._model.inputs:
            shape = "unknown rank" if one.shape is None else f"[{', '.join(map(str, one.shape))}]"
            yield from _prose(f"'{one.name}' is {one.kind}, {shape}")
            if one.shape is not None:
                yield f"#{toml_line(('inputs', one.name, 'shape'), [1 if size == '?' else size for size in one.shape])}"

    def _operator_lines(self) -> Iterator[str]:
        quantized = {name for rule in self._backend.rules for name in rule.ops}
        yield from _fields(NodeSettings, "tables of operators and nodes have these fields:")
        for name in [name for name in self._model.operators if name in quantized][:EXAMPLES]:
            yield from _prose(f"nodes of {name}: {self._model.operators[name]}")
            yield f"#{toml_line(('op', name, *self._example[0]), self._example[1])}"

    def _node_lines(self) -> Iterator[str]:
        for layer in self._model.layers[:EXAMPLES]:
            yield from _prose(f"'{layer.name}': {layer.remark}")
            yield f"#{toml_line(('node', layer.name, 'skip'), True)}"

    def _tensor_lines(self) -> Iterator[str]:
        for one in self._model.inputs[:1]:
            yield f"#{toml_line(('tensor', one.name, 'observer'), 'percentile:99.99')}"

    @property
    def _example(self) -> tuple[tuple[str, str], Any]:
        """Something to say of a table of nodes that the target has."""
        weight_only = self._backend.scheme.activation is None
        return (("weight", "observer"), "mse") if weight_only else (("activation", "observer"), "percentile:99.99")


def _fields(model: type[BaseModel], title: str) -> Iterator[str]:
    yield from _prose(title)
    for key, field in model.model_fields.items():
        yield from _item(key, field.description or "")


def _item(name: str, text: str) -> Iterator[str]:
    yield from _prose(f"{name}: {text}", "  ")


def _prose(text: str, indent: str = "") -> Iterator[str]:
    """Lines of a comment; names of models may hold anything, a newline too."""
    mark = f"# {indent}"
    wrapped = textwrap.wrap(one_line(text), WIDTH, break_long_words=False, break_on_hyphens=False)
    yield from (f"{mark}{line}" if number == 0 else f"{mark}  {line}" for number, line in enumerate(wrapped))
