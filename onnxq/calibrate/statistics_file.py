"""Collected statistics as a file: to continue later, to try other observers on, or to be one shard of several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, StrictBool, StrictInt, StrictStr

from onnxq.calibrate.sealed_npz import REMEDY, read_sealed, write_sealed
from onnxq.errors import DataError, OnnxqError, SpecError
from onnxq.json_file import JsonObject, Stored, parse_json, shortened, validated
from onnxq.observers.statistics import RangeStatistic, statistic_from_arrays

FORMAT, VERSION = "onnxq-statistics", 2

Shards = Annotated[StrictInt, Field(ge=1, lt=2**31)]

Statistics = Mapping[str, Mapping[str, RangeStatistic]]
"""Tensor -> key -> statistic; a key is a short text that tells the statistics of one tensor apart."""


@dataclass(frozen=True)
class Facts:
    """What a run found out beside its statistics.

    unreachable  tensor that no run can return -> why
    runtime      version of onnxruntime and execution provider (`describe_runtime`)
    pinned       tensors that were pinned only because they were looked at (`pinned_beyond`)
    """

    unreachable: Mapping[str, str] = field(default_factory=dict)
    runtime: Mapping[str, str] = field(default_factory=dict)
    pinned: tuple[str, ...] = ()

    def to_json(self) -> dict[str, JsonObject]:
        tensors = {"tensors": list(self.pinned)}
        return {"unreachable": dict(self.unreachable), "runtime": dict(self.runtime), "pinned": tensors}


@dataclass(frozen=True, eq=False)
class StatisticsFile:
    """What was seen of a model's tensors, and where.

    model         hash of the model (`model_identity`)
    samples       hash of the samples that are in it (`SampleHash`)
    sample_count  how many these are
    complete      whether these are all samples of the shard
    shard         (i, n): part i of n, counted from 1; (1, 1) is the whole
    facts         what else the run found out
    path          the file it was read from, for messages
    """

    model: str
    samples: str
    sample_count: int
    statistics: Statistics
    complete: bool = True
    shard: tuple[int, int] = (1, 1)
    facts: Facts = Facts()
    path: Path | None = None

    def __post_init__(self) -> None:
        number, of = self.shard
        if not 1 <= number <= of:
            raise SpecError(f"there is no shard {number} of {of}: shards are numbered from 1 to their number")

    @property
    def ordered(self) -> tuple[str, ...]:
        """Keys of the statistics that depend on the order of the samples."""
        return tuple(sorted({key for kinds in self.statistics.values() for key in kinds if kinds[key].ordered}))

    def __str__(self) -> str:
        number, of = self.shard
        return f"shard {number} of {of}" if self.path is None else str(self.path)


class _Pinned(Stored):
    tensors: list[StrictStr] = Field([])


class _Facts(Stored):
    unreachable: dict[StrictStr, StrictStr] = Field({})
    runtime: dict[StrictStr, StrictStr] = Field({})
    pinned: _Pinned = _Pinned()


class _Header(Stored):
    model: StrictStr
    samples: StrictStr
    sample_count: Annotated[StrictInt, Field(ge=0, lt=2**63)]
    complete: StrictBool
    shard: tuple[Shards, Shards]
    tensors: dict[StrictStr, list[StrictStr]]
    facts: _Facts


def write_statistics(path: Path, file: StatisticsFile) -> None:
    """Write the file whole or not at all; equal contents give equal bytes."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "model": file.model,
        "samples": file.samples,
        "sample_count": file.sample_count,
        "complete": file.complete,
        "shard": list(file.shard),
        "ordered": list(file.ordered),
        "tensors": {tensor: sorted(kinds) for tensor, kinds in file.statistics.items()},
        "facts": file.facts.to_json(),
    }
    text = json.dumps(header, sort_keys=True, allow_nan=False)
    arrays: dict[str, np.ndarray] = {}
    for i, tensor in enumerate(sorted(file.statistics)):
        for j, key in enumerate(sorted(file.statistics[tensor])):
            parts = file.statistics[tensor][key].to_arrays()
            arrays.update((f"{i}/{j}/{name}", parts[name]) for name in sorted(parts))
    write_sealed(path, text, arrays)


def read_statistics(path: Path) -> StatisticsFile:
    """Read what `write_statistics` wrote; anything else is a DataError that names the file."""
    text, arrays = read_sealed(path)
    try:
        document = parse_json(text)
        held = document if isinstance(document, dict) else {}
        if held.get("format") != FORMAT:
            raise DataError(f"it holds {shortened(held.get('format'))} instead of '{FORMAT}'")
        if held.get("version") != VERSION:
            raise DataError(f"it has version {shortened(held.get('version'))}, and this onnxq reads version {VERSION}")
        header = validated(_Header, held, "its header")
        return StatisticsFile(
            model=header.model,
            samples=header.samples,
            sample_count=header.sample_count,
            statistics=_restored(header.tensors, arrays),
            complete=header.complete,
            shard=header.shard,
            facts=Facts(header.facts.unreachable, header.facts.runtime, tuple(header.facts.pinned.tensors)),
            path=path,
        )
    except OnnxqError as error:
        raise DataError(f"{path} cannot be used: {error}; {REMEDY}") from None
    except (LookupError, TypeError, ValueError) as error:  # sealed, but by another writer
        raise DataError(f"{path} is no statistics file of onnxq ({error!r}); {REMEDY}") from None


def check_same(file: StatisticsFile, *, model: str, samples: str | None = None) -> None:
    """Refuse a file that was collected from another model, or (where `samples` is given) from other samples."""
    if file.model != model:
        whence = "another model"
    elif samples is not None and file.samples != samples:
        whence = "other data"
    else:
        return
    raise DataError(f"{file} was collected from {whence}: use another file, or start again with --fresh")


def _restored(
    tensors: Mapping[str, list[str]], arrays: Mapping[str, np.ndarray]
) -> dict[str, dict[str, RangeStatistic]]:
    parts: dict[str, dict[str, np.ndarray]] = {}
    for member, array in arrays.items():
        place, _, name = member.rpartition("/")
        parts.setdefault(place, {})[name] = array
    return {
        tensor: {key: statistic_from_arrays(parts[f"{i}/{j}"]) for j, key in enumerate(tensors[tensor])}
        for i, tensor in enumerate(sorted(tensors))
    }
