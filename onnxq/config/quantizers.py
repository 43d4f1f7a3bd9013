"""What may be said about quantizers: their format, their observer, whether they are there at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from onnxq.errors import ConfigError, OnnxqError, did_you_mean
from onnxq.observers import make_observer
from onnxq.types.fake_quantizers import read_fake_quantizer
from onnxq.types.number_format import number_format
from onnxq.types.overrides import QuantizerOverride, with_bits
from onnxq.types.spec import ROUNDINGS

Check = TypeVar("Check", bound=Callable[..., Any])

REFUSED = "refused"
"""Kind of the errors that `located` makes."""


def located(check: Check) -> Check:
    """Let the errors of a validator have the place of the value, which errors of onnxq do not know by themselves."""

    @wraps(check)
    def checked(*args: Any, **named: Any) -> Any:
        try:
            return check(*args, **named)
        except OnnxqError as error:
            raise PydanticCustomError(REFUSED, "{reason}", {"reason": str(error)}) from None

    return cast(Check, checked)


class Strict(BaseModel):
    """A table without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """What differs from the defaults; `model_dump()` has all of it."""
        held = ((name, getattr(self, name), field) for name, field in type(self).model_fields.items())
        return [(name, value) for name, value, field in held if value != field.get_default(call_default_factory=True)]


class QuantizerSettings(QuantizerOverride):
    """What to change in quantizers; everything left out stays as the next wider level has it."""

    @field_validator("dtype", "rounding")
    @classmethod
    @located
    def _check_word(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.field_name == "dtype":
            number_format(value)
        elif value is not None and value not in ROUNDINGS:
            near = did_you_mean(value, ROUNDINGS)
            raise ConfigError(f"unknown rounding '{value}'.{near} Known: {', '.join(ROUNDINGS)}")
        return value

    @model_validator(mode="after")
    @located
    def _check_scale_rule(self) -> QuantizerSettings:
        if self.scale_rule is not None and self.dtype is not None:
            form = number_format(self.dtype)
            if self.scale_rule not in form.scale_rules:
                known = f"Known: {', '.join(form.scale_rules)}" if form.scale_rules else "It is for the MX formats"
                raise ConfigError(f"{self.dtype} has no scale_rule '{self.scale_rule}'. {known}")
        return self

    @field_validator("bits")
    @classmethod
    @located
    def _check_bits(cls, value: int | None) -> int | None:
        if value is not None and 16 < value < 32:
            raise ConfigError(f"bits must be 1 .. 16, or 32 for a bias, got {value}")
        return value

    @field_validator("observer")
    @classmethod
    @located
    def _read_observer(cls, value: str | Mapping[str, Any] | None) -> str | None:
        return None if value is None else str(make_observer(value))

    @field_validator("fake_quantizer")
    @classmethod
    @located
    def _read_fake_quantizer(cls, value: str | Mapping[str, Any] | None) -> str | None:
        return None if value is None else str(read_fake_quantizer(value))

    @model_validator(mode="after")
    @located
    def _check_together(self) -> QuantizerSettings:
        if self.dtype is not None and self.bits is not None and with_bits(self.dtype, self.bits) != self.dtype:
            raise ConfigError(f"dtype {self.dtype} and bits {self.bits} contradict each other: give one of them")
        if self.skip and self.observe_only:
            raise ConfigError("skip and observe_only contradict each other: give one of them")
        for key, value in self._implied().items():
            given = getattr(self, key)
            if given is not None and given != value:
                raise ConfigError(
                    f"fake_quantizer {self.fake_quantizer} needs {key} = {value!r}, but {key} is set to {given!r}"
                )
        return self

    def _implied(self) -> Mapping[str, Any]:
        return {} if self.fake_quantizer is None else read_fake_quantizer(self.fake_quantizer).implied

    def override(self) -> QuantizerOverride:
        """The same with what the fake-quantizer demands of the format."""
        return self.model_copy(update={k: v for k, v in self._implied().items() if getattr(self, k) is None})


class NodeSettings(Strict):
    """What to change for the nodes of an operator, or for single nodes."""

    skip: StrictBool | None = Field(None, description="leave these nodes float")
    force: StrictBool | None = Field(
        None, description="quantize these nodes though the target's rules leave them float"
    )
    observe_only: StrictBool | None = Field(
        None, description="no quantizer of these nodes changes values; ranges are found"
    )
    activation: QuantizerSettings = Field(QuantizerSettings(), description="the computed tensors that they read")
    weight: QuantizerSettings = Field(QuantizerSettings(), description="their weights")
    bias: QuantizerSettings = Field(QuantizerSettings(), description="their biases")
    output: QuantizerSettings = Field(QuantizerSettings(), description="their results")


class InputSettings(Strict):
    """What to fix of an input of the model."""

    shape: tuple[int | str, ...] | None = Field(
        None, description="sizes; a text keeps a dimension open under that name"
    )
    value: Any = Field(None, description="a number or nested lists: the input becomes this constant")

    @field_validator("shape", mode="before")
    @classmethod
    @located
    def _check_sizes(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and any(isinstance(size, bool) for size in value):
            raise ConfigError(f"a size is a whole number or text (got {value!r})")
        return value
