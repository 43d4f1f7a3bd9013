"""A configuration applied: the backend that it makes of a backend, and what it leaves for placement to decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnxq.config.quantizers import NodeSettings, QuantizerSettings
from onnxq.config.settings import Config
from onnxq.errors import ConfigError, SpecError, did_you_mean
from onnxq.refine import REFINEMENTS
from onnxq.types import Backend, QuantSpec, Scheme
from onnxq.types.overrides import FORMAT_FIELDS, PARTS, Override, OverrideSet, changed

EVERYWHERE = ("activation", "weight", "bias", "input", "output")
"""The tables that are about all quantizers of a kind."""


def resolve(config: Config, backend: Backend) -> Backend:
    """The backend with this configuration's changes."""
    activation, weight = _format(config.activation), _format(config.weight)
    if activation.get("per_channel"):
        activation.setdefault("channel_axis", 1)  # [batch, channels, ...]
    rules = tuple(
        replace(
            rule,
            activation_spec=_applied("activation", activation, rule.activation_spec),
            weight_spec=_applied("weight", weight, rule.weight_spec),
        )
        for rule in backend.rules
    )
    refinements, skipped_rules = _refinements(config, backend)
    return backend.replace(
        scheme=_scheme(config, backend.scheme, activation, weight),
        rules=rules,
        activation_observer=_observer(config) or backend.activation_observer,
        weight_observer=_same("weight_observer", config.weight_observer, config.weight.observer)
        or backend.weight_observer,
        input_observer=config.input.observer or backend.input_observer,
        activation_fake_quantizer=config.activation.fake_quantizer or backend.activation_fake_quantizer,
        weight_fake_quantizer=config.weight.fake_quantizer or backend.weight_fake_quantizer,
        weight_storage=config.weight_storage or backend.weight_storage,
        quantize_inputs=backend.quantize_inputs if config.quantize_inputs is None else config.quantize_inputs,
        residual=config.residual or backend.residual,
        tied=_without(config, "skip_ties", "operator with one scale on both sides", backend.tied, backend),
        passes=_without(config, "skip_passes", "pass", backend.passes, backend),
        refinements=refinements,
        skipped_rules=skipped_rules,
        # What is not corrected is not complained about.
        lints=tuple(name for name in backend.lints if name not in config.skip_refinements),
        emitters=_emitters(config, backend),
        simulations=_without(config, "skip_simulations", "simulation", backend.simulations, backend),
    )


def override_set(config: Config) -> OverrideSet:
    """What is left for placement: levels below the whole model, and what no backend can hold."""
    everywhere = {role: _settings(config, role).override() for role in EVERYWHERE}
    return OverrideSet(
        overrides=tuple(_overrides(config)),
        everywhere={role: override for role, override in everywhere.items() if override.given()},
        where={
            **{
                (role, key): _source(config, _settings(config, role), key, role)
                for role, override in everywhere.items()
                for key in override.given()
            },
            **({("activation", "observer"): config.source("observer")} if config.observer else {}),
            **({("weight", "observer"): config.source("weight_observer")} if config.weight_observer else {}),
        },
        fuse=config.fuse,
    )


def _source(config: Config, settings: QuantizerSettings, key: str, *path: str) -> str:
    """Where a field was set; what a fake-quantizer demands was said where the fake-quantizer was."""
    implied = getattr(settings, key) is None and settings.fake_quantizer is not None
    return config.source(*path, "fake_quantizer" if implied else key)


def _settings(config: Config, role: str) -> QuantizerSettings:
    found: QuantizerSettings = getattr(config, role)
    return found


def _scheme(config: Config, scheme: Scheme, activation: dict[str, Any], weight: dict[str, Any]) -> Scheme:
    other = _but(activation, "dtype", "bits", "scale_rule")
    keeps_type = activation.get("dtype") in (None, scheme.activation and scheme.activation.dtype)
    bits = {key: activation[key] for key in ("bits",) if key in activation}
    bias = _format(config.bias)
    return replace(
        scheme,
        activation=_applied("activation", activation, scheme.activation),
        weight=_applied("weight", weight, scheme.weight),
        # Who asks for quantized biases gets them, also where the target keeps them float by default.
        bias=_applied("bias", bias, scheme.bias or (QuantSpec("int32") if bias else None)),
        # A type of the user's own is meant for all activations, those that cannot be negative included.
        unsigned=_applied("activation", _but(other, "narrow_range") | bits, scheme.unsigned) if keeps_type else None,
        # How many bits the first and the last layer have is the target's choice; the rest is the user's.
        ends=scheme.ends
        and (
            changed(scheme.ends[0], other),
            changed(scheme.ends[1], _but(weight, "dtype", "bits", "scale_rule")),
        ),
    )


def _but(values: Mapping[str, Any], *left_out: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in left_out}


def _format(settings: QuantizerSettings) -> dict[str, Any]:
    return {key: value for key, value in settings.override().given().items() if key in FORMAT_FIELDS}


def _applied(where: str, wanted: Mapping[str, Any], spec: QuantSpec | None) -> QuantSpec | None:
    if spec is None:
        return None
    try:
        return changed(spec, wanted)
    except SpecError as error:
        raise ConfigError(f"[{where}] does not fit the format that the target has there ({spec}): {error}") from None


def _observer(config: Config) -> str | None:
    return _same("observer", config.observer, config.activation.observer)


def _same(key: str, short: str | None, long: Any) -> str | None:
    """One of two spellings of the same setting."""
    if short is not None and long is not None and short != long:
        table = "weight" if key == "weight_observer" else "activation"
        raise ConfigError(f"'{key}' says {short} and [{table}] observer says {long}: give one of them")
    return short or long


def _without(
    config: Config, key: str, kind: str, held: Sequence[str], backend: Backend, unwanted: Sequence[str] | None = None
) -> tuple[str, ...]:
    """What a backend has without what a list of the configuration leaves out; `unwanted` stands for a part of it."""
    unwanted = getattr(config, key) if unwanted is None else unwanted
    for name in unwanted:
        if name not in held:
            has = f" It has: {', '.join(held)}" if held else " It has none"
            line = _line(config, key, name)
            place = f" ({line})" if line else ""
            raise ConfigError(f"{key}: {backend.name} has no {kind} '{name}'{place}.{did_you_mean(name, held)}{has}")
    return tuple(name for name in held if name not in unwanted)


def _line(config: Config, key: str, name: str) -> str:
    """The line that holds a name of a list; nothing where the settings have no lines."""
    said = config.source(key, name)
    return "" if said in (key, f"{key}.{name}") else said


def _emitters(config: Config, backend: Backend) -> tuple[str, ...]:
    if backend.emitters and backend.emitters[0] in config.skip_emitters:
        raise ConfigError(
            f"skip_emitters: '{backend.emitters[0]}' writes the model itself, which is what gets checked: it stays"
        )
    return _without(config, "skip_emitters", "emitter", backend.emitters, backend)


def _refinements(config: Config, backend: Backend) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The refinements that are left, and of those the rules that are left out: "refinement.rule" names one rule."""
    rules: dict[str, tuple[str, ...]] = {}
    whole = []
    for name in config.skip_refinements:
        head, dot, rule = name.partition(".")
        known = REFINEMENTS.get(head).rules if dot and head in backend.refinements else ()
        if not known:
            whole.append(name)
        elif rule not in known:
            raise ConfigError(f"{head} has no rule '{rule}'.{did_you_mean(rule, known)} Known: {', '.join(known)}")
        else:
            rules[head] = (*rules.get(head, ()), rule)
    kept = _without(config, "skip_refinements", "refinement", backend.refinements, backend, whole)
    return kept, {name: skipped for name, skipped in rules.items() if name in kept}


def _overrides(config: Config) -> Iterator[Override]:
    """From the lists, then from the tables, each in the order in which it was written."""
    for flag, patterns in (("skip", config.skip), ("force", config.force)):
        for pattern in patterns:
            yield Override.of_list(pattern, flag, _line(config, flag, pattern))
    for level in ("op", "node"):
        tables: Mapping[str, NodeSettings] = getattr(config, level)
        for pattern, settings in tables.items():
            overrides = {part: getattr(settings, part).override() for part in PARTS}
            flags = {key: getattr(settings, key) for key in ("skip", "force", "observe_only")}
            where: dict[tuple[str, ...], str] = {
                **{
                    (part, key): _source(config, getattr(settings, part), key, level, pattern, part)
                    for part in PARTS
                    for key in overrides[part].given()
                },
                **{(key,): config.source(level, pattern, key) for key in flags},
            }
            flags = {key: value for key, value in flags.items() if value is not None}
            overrides = {part: override for part, override in overrides.items() if override.given()}
            yield Override.of_nodes(f"op:{pattern}" if level == "op" else pattern, flags, where, overrides)
    for pattern, about in config.tensor.items():
        said_at: dict[tuple[str, ...], str] = {
            ("tensor", key): _source(config, about, key, "tensor", pattern) for key in about.override().given()
        }
        yield Override("tensor", pattern, {"tensor": about.override()}, {}, said_at)
