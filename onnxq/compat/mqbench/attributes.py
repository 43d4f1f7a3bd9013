"""preserve_attr: what has to survive of a model besides its outputs: metadata, and results that become outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxq.compat.modules import Exported, nodes_of_module
from onnxq.compat.translation import Translator, items_of, shown
from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping
from onnxq.types.translation import Outcome, no_effect

Objects = dict[str, dict[str, object]]
"""Path of a module -> attributes of the torch module by name."""


def translate_attributes(translator: Translator, given: Any, model: Exported, where: str = "preserve_attr") -> None:
    """Find each attribute as metadata, as a tensor, or as a module, in this order."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must hold modules and lists of attributes, it holds {shown(given)}")
    for module, attributes in given.items():
        full = f"{where}[{module!r}]"
        for attribute in items_of(attributes, full):
            if not isinstance(module, str) or not isinstance(attribute, str):
                raise ConfigError(f"{full}: modules and attributes are names, got {shown(attribute)}")
            name = f"{module}.{attribute}" if module else attribute
            translator.row(full, attribute, _preserve(translator, name, model, full))


def split_objects(extra_config: JsonMapping | None) -> tuple[Objects, JsonMapping | None]:
    """Take the attributes out of preserve_attr that are given as objects: functions, methods, {"name": value}.

    They are for the torch module, which has them under their names; a file cannot hold them.
    """
    given = (extra_config or {}).get("preserve_attr")
    if extra_config is None or not isinstance(given, Mapping):
        return {}, extra_config
    objects: Objects = {}
    names: dict[Any, Any] = {}
    for path, attributes in given.items():
        if not isinstance(path, str) or not isinstance(attributes, Mapping | list | tuple):
            names[path] = attributes
            continue
        own = dict(attributes) if isinstance(attributes, Mapping) else _named_objects(attributes)
        if own:
            objects[path] = own
        rest = [] if isinstance(attributes, Mapping) else [item for item in attributes if not _is_object(item)]
        if rest or not own:
            names[path] = rest
    return objects, {**extra_config, "preserve_attr": names} if names else _without(extra_config, "preserve_attr")


def _named_objects(attributes: Sequence[Any]) -> dict[str, object]:
    return {item.__name__: item for item in attributes if _is_object(item)}


def _is_object(item: object) -> bool:
    return callable(item) and isinstance(getattr(item, "__name__", None), str)


def _without(table: JsonMapping, key: str) -> JsonMapping:
    return {name: value for name, value in table.items() if name != key}


def _preserve(translator: Translator, name: str, model: Exported, where: str) -> str | Outcome:
    graph = model.graph
    if name in graph.metadata:
        return f"metadata '{name}' of the model is kept, as all of it always is"
    tensors = [name] if graph.has_tensor(name) else _results(model, name, where)
    hidden = [tensor for tensor in tensors if tensor not in graph.output_names]
    if not hidden:
        return no_effect(f"{', '.join(tensors)} is an output of the model already")
    for tensor in hidden:
        if tensor in graph.input_names or graph.is_constant(tensor):
            raise ConfigError(f"{where}: '{tensor}' is an input or a constant, which needs no preserving; leave it out")
        if graph.home_of(tensor) is not graph.gs:
            raise ConfigError(f"{where}: '{tensor}' is inside the body of a control-flow node and cannot be an output")
    translator.append("extra_outputs", hidden, where)
    return f"further output of the model: {', '.join(hidden)}"


def _results(model: Exported, path: str, where: str) -> list[str]:
    """What leaves a module: tensors that its nodes make and others read."""
    graph = model.graph
    try:
        inside = dict.fromkeys(nodes_of_module(model, path, where))
    except ConfigError as error:
        known = [*graph.metadata, *graph.tensor_names()]
        raise ConfigError(
            f"{where}: '{path}' is neither metadata nor a tensor nor a module of the model.{did_you_mean(path, known)} "
            "Methods and other Python attributes are not part of an ONNX file: give the function itself, and the torch "
            f"module of the prepared model has it. {error}"
        ) from None
    results = []
    for name in inside:
        for tensor in graph.node(name).outputs:
            read_outside = any(use.node.name not in inside for use in graph.consumers(tensor))
            if tensor.name and (read_outside or graph.is_output(tensor)) and not graph.is_constant(tensor):
                results.append(tensor.name)
    return results
