"""concrete_args: inputs of the model that are fixed to a value or to a shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxq.compat.translation import Translator, shown
from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph import Graph
from onnxq.types.translation import Outcome, no_effect


def translate_arguments(translator: Translator, given: Any, graph: Graph, where: str = "concrete_args") -> None:
    """Fix inputs; arguments of Python that never became inputs get a row."""
    if given is None or (isinstance(given, Mapping) and not given):
        translator.row(where, given, no_effect("no input is fixed"))
        return
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must hold names of inputs and values, it holds {shown(given)}")
    for name, value in given.items():
        full = f"{where}.{name}"
        absent = name not in graph.input_names
        became = _absent(str(name), value, graph, full) if absent else _fix(translator, name, value, full)
        translator.row(full, _brief(value), became)


def _absent(name: str, value: Any, graph: Graph, where: str) -> Outcome:
    """Flags, texts and None never are inputs of an ONNX file: whoever exported it has fixed them."""
    if value is None or isinstance(value, bool | str):
        return no_effect(f"the model has no input '{name}'; its exporter has fixed it")
    raise ConfigError(
        f"{where}: the model has no input '{name}'.{did_you_mean(name, graph.input_names)} Inputs: "
        f"{', '.join(graph.input_names)}"
    )


def _fix(translator: Translator, name: str, value: Any, where: str) -> str | Outcome:
    if type(value).__name__ == "PHBase":  # torch.fx.PH: "leave this argument open"
        return no_effect("it stays an input")
    if value is None:
        raise ConfigError(
            f"{where}: '{name}' is an input of the model, so something must be fed to it. Give a value, or export the "
            "model without it"
        )
    shape = read_shape(value, where)
    if shape is not None:
        translator.set(("inputs", name, "shape"), list(shape), where)
        return f"inputs.{name}.shape = {list(shape)}"
    constant = plain_value(value, where)
    translator.set(("inputs", name, "value"), constant, where)
    return f"inputs.{name}.value: the input becomes a constant"


def read_shape(value: Any, where: str) -> tuple[int | str, ...] | None:
    """A shape given as {"shape": [...]} or as torch.Size; None for anything else."""
    if isinstance(value, Mapping) and set(value) == {"shape"}:
        sizes = value["shape"]
        if not isinstance(sizes, list | tuple) or not all(type(size) in (int, str) for size in sizes):
            raise ConfigError(f"{where}: a shape is a list of sizes, such as [1, 3, 224, 224]; got {shown(sizes)}")
        return tuple(sizes)
    return tuple(int(size) for size in value) if type(value).__name__ == "Size" else None


def plain_value(value: Any, where: str) -> Any:
    """A number, or nested lists of numbers, of a number, list, array or torch tensor."""
    if hasattr(value, "detach"):
        value = value.detach()
    if hasattr(value, "tolist"):
        return value.tolist()
    if _is_plain(value):
        return value
    raise ConfigError(
        f"{where}: an input is fixed to a number, nested lists, an array or {{'shape': [...]}}; got {shown(value)}"
    )


def _brief(value: Any) -> Any:
    """Arrays and tensors by their shape, so that a row stays a line."""
    return f"array of shape {list(value.shape)}" if hasattr(value, "shape") else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(_is_plain(item) for item in value)
    return isinstance(value, bool | int | float)
