"""The resolved configuration: every choice of a run spelt out, to be read, changed and run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from onnxq.config.quantizers import QuantizerSettings
from onnxq.config.read import read_config
from onnxq.config.resolve import resolve
from onnxq.config.settings import Config
from onnxq.errors import OnnxqError
from onnxq.targets import file_of_backend, registered_backend
from onnxq.types import Backend, PerChannel, QuantSpec


def resolved_settings(
    backend: Backend,
    config: Config,
    passes: Sequence[str] = (),
    target: str | None = None,
    *,
    effort_tried: bool = True,
) -> dict[str, Any]:
    """`config` with the backend's choices in the places that were left open; running it gives the same files.

    But for the report, and for the places in the plan that say who decided: those are then lines of this configuration.
    `backend` is the resolved one, `target` what it was called by: one from a file is known by that file alone. A
    default is spelt out where saying it changes nothing; formats that differ from layer to layer by the target's own
    rules stay with the target. A default effort that was not tried (there was no data, or the model was too large) is
    left out: spelt out it would be somebody's setting.
    """
    given = config.model_dump(mode="json", exclude_defaults=True)
    from_file = target is not None and file_of_backend(target) is not None
    values: dict[str, Any] = {
        "backend": target if from_file else backend.name,
        **{key: given[key] for key in given if key != "backend"},
    }
    if passes:
        values["passes"] = [*values.get("passes", []), *passes]
    defaults: dict[str, Any] = {
        "quantize_inputs": backend.quantize_inputs,
        "residual": backend.residual,
        "weight_storage": backend.weight_storage,
        "verify_samples": config.verify_samples,
        "minimum_sqnr_db": config.minimum_sqnr_db,
        "name": config.name,
        "portable": config.portable,
        "effort": config.effort,
    }
    if "effort" not in config.model_fields_set:
        if config.improvements is not None:
            defaults["effort"] = 0  # beside those by name a default effort tries nothing, one that is said does
        elif not effort_tried:
            del defaults["effort"]
    scheme = backend.scheme
    for role, spec in (("activation", scheme.activation), ("weight", scheme.weight), ("bias", scheme.bias)):
        if spec is not None:
            defaults[role] = {**_spelt_out(spec, role), **values.get(role, {})}
    tries_observers = config.effort > 0 or config.improvements is not None  # one that is spelt out would not be tried
    for role, observer in (("activation", backend.activation_observer), ("weight", backend.weight_observer)):
        if (
            not tries_observers
            and role in defaults
            and ("observer" if role == "activation" else "weight_observer") not in values
        ):
            defaults[role]["observer"] = observer
    for key, value in defaults.items():
        tried = {**values, key: value}
        if _same_backend(tried, backend):
            values = tried
    for role in ("activation", "weight", "bias"):
        if role in values:
            values[role] = _in_order(values[role], QuantizerSettings)
    return _in_order(values, Config)


def _in_order(values: Mapping[str, Any], table: type[BaseModel]) -> dict[str, Any]:
    """Keys in the order of their table, so that the file of a run is that of its repetition."""
    return {key: values[key] for key in table.model_fields if key in values}


def _spelt_out(spec: QuantSpec, role: str) -> dict[str, Any]:
    words: dict[str, Any] = {"dtype": spec.dtype}
    if spec.evenly_spaced and not spec.format.bias_only:
        words |= {
            "symmetric": spec.symmetric,
            "narrow_range": spec.narrow_range,
            "power_of_two": spec.power_of_two,
            "rounding": spec.rounding,
        }
    if role == "weight":
        words["per_channel"] = isinstance(spec.granularity, PerChannel)
    return words


def _same_backend(values: dict[str, Any], backend: Backend) -> bool:
    """Whether these settings make the same backend again."""
    try:
        made = resolve(read_config(values), registered_backend(backend.name))
    except OnnxqError:  # a backend that is not registered under its name, or a format that cannot be said twice
        return False
    return made.replace(configure=None) == backend.replace(configure=None)
