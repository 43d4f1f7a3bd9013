"""Schemas of checkpoints: of which kind the values of a file are, before a training goes on from them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

Whole = Annotated[StrictInt, Field(ge=0, lt=2**63)]
Number = StrictFloat | None
"""A loss or a metric, which may be no number at all."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BestEntry(_Table):
    """The best evaluation so far, as `Best.to_json` has it."""

    higher_is_better: StrictBool
    value: Number
    step: Whole
    epoch: Whole
    stale: Whole


class HistoryEntry(_Table):
    """The course so far, as `History.to_json` has it."""

    every: Annotated[Whole, Field(ge=1)]
    rows: list[tuple[Whole, Whole, Number, Number, Number, Number, Number]]
    sums: dict[StrictStr, StrictFloat]
    count: Whole
    pending: tuple[Whole, Whole, StrictFloat] | None


class ScalesEntry(_Table):
    """The scales so far, as `ScaleCourse.to_json` has them."""

    every: Annotated[Whole, Field(ge=1)]
    tensors: list[StrictStr]
    steps: list[Whole]
    rows: list[list[StrictFloat]]

    @model_validator(mode="after")
    def _is_whole(self) -> ScalesEntry:
        if len(self.rows) != len(self.steps) or any(len(row) != len(self.tensors) for row in self.rows):
            raise ValueError("a row for each of its steps, with a number for each of its tensors")
        return self


class Written(_Table):
    """What every file has."""

    format: StrictInt
    identity: StrictStr
    net: dict[StrictStr, Any]


class CheckpointSchema(Written):
    """step-*.pt: what a training goes on from."""

    step: Whole
    seconds: Annotated[StrictFloat, Field(ge=0, allow_inf_nan=False)]
    optimizer: dict[StrictStr, Any]
    history: HistoryEntry
    scales: ScalesEntry | None = None
    best: BestEntry


class BestSchema(Written, BestEntry):
    """best.pt: the parameters of the best evaluation."""
