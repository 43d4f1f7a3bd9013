"""input_quantize_config: the quantizer of all inputs of a model, or of those that input_layers names."""

from __future__ import annotations

from typing import Any

from onnxq.compat.translation import check_keys
from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping
from onnxq.targets.amd.dialect.formats import Settings, described, settings_of
from onnxq.targets.amd.dialect.quantizers import Quantizer, read_quantizer
from onnxq.targets.amd.dialect.reading import texts
from onnxq.targets.amd.dialect.registry import Registry, check_kind


def apply_inputs(registry: Registry, given: Any, key: str) -> None:
    """Set the quantizer of inputs; for all of them it takes the place of the strategy's own."""
    config = check_keys(given, ("input_layers", "input_quantizer"), key)
    named = texts(config.get("input_layers") or [], f"{key}.input_layers")
    if "input_layers" in config:
        became = f"the quantizer is for {', '.join(named)} alone" if named else "all inputs of the model"
        registry.translator.row(f"{key}.input_layers", config["input_layers"], became)
    if config.get("input_quantizer") is None:
        if named:
            raise ConfigError(f"{key}: input_layers names inputs, so input_quantizer has to say what they get")
        return
    quantizer = read_quantizer(config["input_quantizer"], f"{key}.input_quantizer").within(registry.strategy)
    check_kind(quantizer, registry.strategy)
    registry.lift_highest_position(quantizer.params.get("max_quantize_pos", 0), quantizer.where)
    made = _settings(registry, quantizer)
    if named:
        for name in named:
            _set_one(registry, name, made, quantizer.where, f"{key}.input_layers")
    else:
        registry.inputs = quantizer
    place = "[tensor]" if named else "[input]"
    row = "; ".join([f"{place} {described(made.fields)}", *made.remarks])
    registry.translator.row(f"{key}.input_quantizer", config["input_quantizer"], row)


def _settings(registry: Registry, quantizer: Quantizer) -> Settings:
    params: JsonMapping = {
        **registry.base("input", quantizer.kind),
        **quantizer.params,
        **registry.user["input"],
    }
    return settings_of(quantizer.kind, params, "input", quantizer.where, quantizer.own)


def _set_one(registry: Registry, name: str, made: Settings, source: str, key: str) -> None:
    """An input of the model, or what a layer reads."""
    paths: list[tuple[str, ...]] = [("tensor", name)]
    inputs = registry.graph.input_names
    if name not in inputs:
        try:
            paths = [("node", node, "activation") for node in registry.names.called(name, key)]
        except ConfigError as error:
            near = did_you_mean(name, inputs, most=1)
            held = ", ".join(inputs)
            raise ConfigError(f"{error}. Nor is it an input of the model.{near} Inputs: {held}") from None
    for path in paths:
        for field, value in made.fields.items():
            registry.translator.set((*path, field), value, source)
