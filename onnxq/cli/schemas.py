"""Schemas of plan.json, qparams.json and report.json: of which kind each value is, before anything is made of it.

What values mean (is this a format, does the scale fit it) is for the types to say; so are keys that nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, create_model, field_validator
from pydantic_core import PydanticCustomError

from onnxq.config.code import CODE_KEYS
from onnxq.json_file import JsonObject, Stored
from onnxq.types.note import Kind
from onnxq.types.overrides import QuantizerOverride, Treatment

Text = StrictStr
Whole = Annotated[StrictInt, Field(ge=-(2**63), le=2**63 - 1)]


class GranularityEntry(Stored):
    per: Text
    axis: Whole | None = None
    size: Whole | None = None


class SpecEntry(Stored):
    dtype: Text
    symmetric: StrictBool = True
    narrow_range: StrictBool = False
    power_of_two: StrictBool = False
    rounding: Text = ""
    granularity: GranularityEntry | None = None
    quant_min: Whole | None = None
    quant_max: Whole | None = None
    signed_scale: StrictBool = False


class BiasEntry(Stored):
    input: Text
    weight: Text


_STRICT: Mapping[type, Any] = {str: Text, bool: StrictBool, float: StrictFloat}

_treatment: Any = {
    item.name: (
        Annotated[_STRICT[type(item.default)], Field(), *QuantizerOverride.model_fields[item.name].metadata],
        item.default,
    )
    for item in fields(Treatment)
}
_TreatmentEntry: Any = create_model("_TreatmentEntry", __base__=Stored, **_treatment)


class PlacementEntry(_TreatmentEntry):
    spec: SpecEntry
    role: Text
    why: Text = ""
    edges: list[tuple[Text, Annotated[Whole, Field(ge=0)]]] | None = None
    tie: Text | None = None
    observe: list[Text] = Field([])
    derive: BiasEntry | None = None
    set_by: dict[Text, Text] = Field({})


class NodesEntry(Stored):
    quantized: dict[Text, Text] = Field({})
    fused: dict[Text, Text] = Field({})
    float: dict[Text, Text] = Field({})


class JoinMemberEntry(Stored):
    tensor: Text
    low: StrictFloat | Whole
    high: StrictFloat | Whole
    steps: StrictFloat | Whole


class UnlikeJoinEntry(Stored):
    node: Text
    result: Text
    scale: StrictFloat | Whole
    fewest: StrictFloat | Whole
    members: list[JoinMemberEntry]
    tail: list[Text]


class PlanSchema(Stored):
    """plan.json."""

    backend: Text
    model: Text = ""
    tensors: dict[Text, PlacementEntry]
    nodes: NodesEntry = NodesEntry()
    config: dict[Text, Any] = Field({})
    notes: list[Text] = Field([])
    left_out: dict[Text, Text] = Field({})
    unlike: list[UnlikeJoinEntry] = Field([])

    @field_validator("config")
    @classmethod
    def _check_config(cls, value: JsonObject) -> JsonObject:
        for key in CODE_KEYS:
            if key in value:
                raise PydanticCustomError("code", "config.{key} does not belong into a plan, take it out", {"key": key})
        return value


class ParametersEntry(Stored):
    """Of one tensor; QParams checks the arrays, of which some have millions of numbers."""

    spec: SpecEntry
    scale: Any
    zero_point: Any
    provenance: Text = Field("", alias="from")


class IntegersEntry(Stored):
    dtype: Text
    values: list[Any] | StrictInt


class ParametersSchema(Stored):
    """qparams.json."""

    tensors: dict[Text, ParametersEntry]
    integer_weights: dict[Text, IntegersEntry] = Field({})


Figure = StrictFloat | StrictInt | Literal["inf", "-inf", "nan"]


class DecisionsEntry(Stored):
    kind: Text
    agreement: Annotated[float, Field(ge=0, le=1)]
    compared: Annotated[StrictInt, Field(ge=0)]


class ResultEntry(Stored):
    name: Text
    sqnr_db: Figure | None = None
    agreement: StrictFloat | StrictInt | None = None
    silent: StrictBool = False
    decisions: DecisionsEntry | None = None
    parts: tuple[ResultEntry, ...] = ()
    parts_db: dict[Text, Figure] = Field(default_factory=dict)


class ChecksEntry(Stored):
    outputs: list[ResultEntry]
    samples: StrictInt | None = None


class SpeedEntry(Stored):
    float_ms: StrictFloat | StrictInt | None = None
    file_ms: StrictFloat | StrictInt | None = None
    times_as_fast: StrictFloat | StrictInt | None = None


class CoverageEntry(Stored):
    nodes: StrictInt
    quantized: StrictInt
    fused: StrictInt
    float_codes: dict[Text, list[Text]] = Field(default_factory=dict)


class PassEntry(Stored):
    name: Text
    changed: list[Text]
    declined: list[Text]


class StepEntry(Stored):
    name: Text
    applied: StrictBool


class ImprovementsEntry(Stored):
    steps: list[StepEntry]


class GivenEntry(Stored):
    given: dict[Text, Any] = Field(default_factory=dict)


class VendorStepEntry(Stored):
    what: Text
    line: Text


class ReportSchema(Stored):
    """What the page of a run, and its comparison with another, is made of; the rest is shown as it is."""

    backend: Text
    model: Text | None = None
    coverage: CoverageEntry
    checks: ChecksEntry
    simulated_sqnr_db: dict[Text, Figure] = Field(default_factory=dict)
    warnings: list[Text]
    notes: list[Text]
    kinds: dict[Kind, list[Text]] = Field(default_factory=dict)
    files: list[Text]
    vendor_steps: tuple[VendorStepEntry, ...] = ()
    passes: tuple[PassEntry, ...] = ()
    improvements: ImprovementsEntry | None = None
    speed: SpeedEntry | None = None
    versions: dict[Text, Text] = Field(default_factory=dict)
    config: GivenEntry = GivenEntry()
