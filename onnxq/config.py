"""Configuration: TOML, YAML, JSON, a dict or keyword arguments become one typed value; unknown keys are errors."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from onnxq.errors import ConfigError, SpecError, did_you_mean
from onnxq.runtime.collect import Engine
from onnxq.runtime.memory import read_size
from onnxq.runtime.preprocessing import read_preprocessing
from onnxq.types import Backend, PerChannel, PerTensor, QuantSpec
from onnxq.types.spec import FLOAT_DTYPES, NNIE_DTYPES


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FormatChange(_Strict):
    """What to change in a number format; everything left out stays as the backend has it."""

    dtype: str | None = Field(None, description="int1 .. int16, uint1 .. uint16, fp8_e4m3, fp8_e5m2")
    symmetric: bool | None = None
    narrow_range: bool | None = None
    power_of_two: bool | None = None
    rounding: str | None = None

    def changes(self, spec: QuantSpec) -> dict[str, Any]:
        """The fields that are set, and what another type brings with it: the bounds and restrictions of its own."""
        found = {key: value for key, value in self.model_dump().items() if value is not None}
        dtype = found.get("dtype", spec.dtype)
        if dtype == spec.dtype:
            return found
        implied: dict[str, Any] = {"quant_min": None, "quant_max": None}
        if dtype in (*FLOAT_DTYPES, *NNIE_DTYPES):  # no zero point, no integers
            implied |= {"symmetric": True, "narrow_range": False, "rounding": "half_even"}
        elif dtype.startswith("u"):
            implied["narrow_range"] = False
        return {**implied, **found}

    def apply(self, spec: QuantSpec) -> QuantSpec:
        return spec.replace(**self.changes(spec))


class WeightChange(FormatChange):
    """What to change in the number format of weights."""

    per_channel: bool | None = Field(None, description="weights only: one scale per output channel, or one per tensor")

    def apply(self, spec: QuantSpec) -> QuantSpec:
        changes = self.changes(spec)
        per_channel = changes.pop("per_channel", None)
        if per_channel is not None:
            changes["granularity"] = PerChannel(0) if per_channel else PerTensor()
        return spec.replace(**changes)


class Config(_Strict):
    """Everything a run can be told, with the backend's choice where a value is left out."""

    skip: tuple[str, ...] = Field((), description="nodes to leave float: exact name, glob, re:REGEX or op:OPERATOR")
    observer: str | None = Field(
        None, min_length=1, description="how ranges of activations are found, such as percentile:99.99"
    )
    weight_observer: str | None = Field(None, min_length=1, description="how ranges of weights are found")
    activation: FormatChange = FormatChange()
    weight: WeightChange = WeightChange()
    weight_storage: Literal["integer", "float"] | None = Field(
        None, description="integers in the file, or float with Q/DQ"
    )
    portable: bool = Field(
        False, description="onnxruntime: weights that no processor's kernels saturate, at some speed"
    )
    preprocess: str | dict[str, Any] | None = Field(
        None, description="how images become arrays: imagenet, unit, signed, or a table of settings"
    )
    samples: int | None = Field(None, ge=1, strict=True, description="use at most this many calibration samples")
    workers: int | None = Field(None, ge=1, strict=True, description="samples that are run at the same time")
    memory_limit: str | int | None = Field(
        None, description="what calibration may hold of observed tensors, such as 2GB; a quarter of the free memory"
    )
    provider: str | None = Field(None, description="onnxruntime's execution provider for calibration, such as cuda")
    verify_samples: int = Field(
        8, ge=1, description="samples on which the written file is compared with the float model"
    )
    minimum_sqnr_db: float = Field(5.0, allow_inf_nan=False, description="an output below this fails the run")
    skip_passes: tuple[str, ...] = Field((), description="graph passes of the backend to leave out")

    @field_validator("preprocess", mode="before")
    @classmethod
    def _check_preprocess(cls, value: Any) -> Any:
        steps = read_preprocessing(value)
        return asdict(steps) if steps is value and steps is not None else value

    @field_validator("memory_limit")
    @classmethod
    def _check_memory_limit(cls, value: str | int | None) -> str | int | None:
        if value is not None:
            read_size(value)
        return value

    def engine(self) -> Engine:
        """How calibration runs the model."""
        limit = None if self.memory_limit is None else read_size(self.memory_limit)
        return Engine(self.workers, limit, self.provider)

    def recorded(self) -> dict[str, Any]:
        """What was set and changes results, for a plan to remember."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude={"workers", "memory_limit"})

    def resolve(self, backend: Backend) -> Backend:
        """The backend with this configuration's changes."""
        scheme = backend.scheme
        other = self.activation.model_copy(update={"dtype": None})  # all but the type
        keeps_type = self.activation.dtype in (None, scheme.activation and scheme.activation.dtype)
        changed = replace(
            scheme,
            activation=_applied(self.activation, scheme.activation),
            weight=_applied(self.weight, scheme.weight),
            # A type of the user's own is meant for all activations, those that cannot be negative included.
            unsigned=_applied(other, scheme.unsigned) if keeps_type else None,
            # How many bits the first and the last layer have is the target's choice; the rest is the user's.
            ends=scheme.ends
            and (
                other.apply(scheme.ends[0]),
                self.weight.model_copy(update={"dtype": None}).apply(scheme.ends[1]),
            ),
        )
        rules = tuple(
            replace(
                rule,
                activation_spec=_applied(self.activation, rule.activation_spec),
                weight_spec=_applied(self.weight, rule.weight_spec),
            )
            for rule in backend.rules
        )
        for name in self.skip_passes:
            if name not in backend.passes:
                raise ConfigError(
                    f"skip_passes: {backend.name} has no pass '{name}'.{did_you_mean(name, backend.passes)}"
                )
        return backend.replace(
            scheme=changed,
            rules=rules,
            activation_observer=self.observer or backend.activation_observer,
            weight_observer=self.weight_observer or backend.weight_observer,
            weight_storage=self.weight_storage or backend.weight_storage,
            passes=tuple(name for name in backend.passes if name not in self.skip_passes),
        )


def _applied(change: FormatChange, spec: QuantSpec | None) -> QuantSpec | None:
    if spec is None:
        return None
    try:
        return change.apply(spec)
    except SpecError as error:
        where = "weight" if isinstance(change, WeightChange) else "activation"
        raise ConfigError(f"[{where}] does not fit the format that the target has there ({spec}): {error}") from None


def read_config(source: Config | Mapping[str, Any] | str | Path | None, **overrides: Any) -> Config:
    """A Config from whatever the caller has; `overrides` that are not None win over the file."""
    if isinstance(source, Config):
        values = source.model_dump(exclude_unset=True)
        where = "configuration"
    elif isinstance(source, str | Path):
        values, where = _read_file(Path(source)), str(source)
    elif source is None or isinstance(source, Mapping):
        values, where = dict(source or {}), "configuration"
    else:
        raise ConfigError(f"a configuration is a Config, a dict or the path of a file, not a {type(source).__name__}")
    values.update({key: value for key, value in overrides.items() if value is not None})
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(_explain(item) for item in error.errors())) from None


def _read_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"no configuration file at {path}")
    text = path.read_text(encoding="utf-8")
    data: Any
    try:
        if path.suffix == ".toml":
            data = tomllib.loads(text)
        elif path.suffix in (".yaml", ".yml"):
            data = yaml.safe_load(text)
        elif path.suffix == ".json":
            data = json.loads(text)
        else:
            raise ConfigError(f"{path}: a configuration is a .toml, .yaml, .yml or .json file")
    except (tomllib.TOMLDecodeError, yaml.YAMLError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if data is None:  # an empty YAML file
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold keys and values, it holds a {type(data).__name__}")
    return data


def _explain(item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        inside = {"activation": FormatChange, "weight": WeightChange}.get(str(item["loc"][0]))
        known = inside.model_fields if inside is not None and len(item["loc"]) > 1 else Config.model_fields
        return f"unknown key '{key}'.{did_you_mean(str(item['loc'][-1]), known)} Known: {', '.join(known)}"
    return f"'{key}': {item['msg'].lower()} (got {item['input']!r})"
