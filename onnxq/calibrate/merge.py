"""Statistics of n shards -> the statistics that one run over all the data would have given, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from onnxq.calibrate.identity import SampleHash
from onnxq.calibrate.statistics_file import Facts, Statistics, StatisticsFile
from onnxq.errors import DataError, OnnxqError
from onnxq.observers.statistics import RangeStatistic, statistic_from_arrays


def merge_statistics(files: Iterable[StatisticsFile]) -> StatisticsFile:
    """The whole from its shards, each of which must be there exactly once; they may come in any order.

    The files are taken one after the other, so that an iterator that reads them holds one at a time.
    """
    first: StatisticsFile | None = None
    seen: dict[int, str] = {}
    for file in files:
        _check_mergeable(file)
        if first is None:
            first = file
            statistics = _copied(file.statistics)
            samples, count, facts = SampleHash(file.samples), file.sample_count, file.facts
        else:
            _check_alike(file, first, seen)
            _absorb(statistics, file, first)
            samples.merge(SampleHash(file.samples))
            count += file.sample_count
            facts = _united(facts, file, first)
        seen[file.shard[0]] = str(file)
    if first is None:
        raise DataError("there is nothing to merge: give the statistics file of every shard")
    missing = sorted(set(range(1, first.shard[1] + 1)) - set(seen))
    if missing:
        numbers = ", ".join(map(str, missing))
        raise DataError(
            f"of the {first.shard[1]} shards that {first} belongs to, "
            f"{'number ' + numbers + ' is' if len(missing) == 1 else 'numbers ' + numbers + ' are'} missing: "
            "calibrate what is missing, and merge all of them at once"
        )
    return replace(
        first,
        samples=samples.hexdigest(),
        sample_count=count,
        statistics=statistics,
        shard=(1, 1),
        facts=facts,
        path=None,
    )


def _check_mergeable(file: StatisticsFile) -> None:
    if not file.complete:
        raise DataError(
            f"{file} is not complete, its run ended after {file.sample_count} samples: "
            "finish it with the command that began it, then merge"
        )
    if file.ordered and file.shard[1] > 1:
        raise DataError(
            f"{file} holds '{file.ordered[0]}', which depends on the order of the samples and cannot be merged: "
            "calibrate without shards, or with an observer such as minmax, percentile, mse or kl"
        )


def _check_alike(file: StatisticsFile, first: StatisticsFile, seen: Mapping[int, str]) -> None:
    """Whether a file is another shard of the run that the first one belongs to."""
    number, of = file.shard
    if file.model != first.model:
        raise DataError(f"{file} was collected from another model than {first}: merge shards of one model only")
    if of != first.shard[1]:
        raise DataError(
            f"{file} is shard {number} of {of}, while {first} is one of {first.shard[1]}: merge shards of one run only"
        )
    if number in seen:
        raise DataError(f"{file} is shard {number} of {of}, and so is {seen[number]}: give each shard once")
    kinds, wanted = _kinds(file.statistics), _kinds(first.statistics)
    for tensor, key in sorted(
        {place for place in kinds.keys() | wanted.keys() if kinds.get(place) != wanted.get(place)}
    ):
        difference = [
            f"{name} has {place.get((tensor, key), 'none')}" for name, place in ((file, kinds), (first, wanted))
        ]
        raise DataError(
            f"the statistic '{key}' of tensor '{tensor}' differs: {' and '.join(difference)}. "
            "Calibrate every shard with the same plan and observers"
        )


def _kinds(statistics: Statistics) -> dict[tuple[str, str], str]:
    return {(tensor, key): held.kind for tensor, keys in statistics.items() for key, held in keys.items()}


def _copied(statistics: Statistics) -> dict[str, dict[str, RangeStatistic]]:
    """Statistics that can be merged into without changing those of a file."""
    return {
        tensor: {key: statistic_from_arrays(held.to_arrays()) for key, held in keys.items()}
        for tensor, keys in statistics.items()
    }


def _absorb(statistics: Statistics, file: StatisticsFile, first: StatisticsFile) -> None:
    for tensor, keys in statistics.items():
        for key, held in keys.items():
            try:
                held.merge(file.statistics[tensor][key])
            except OnnxqError as error:
                raise DataError(f"{file} does not go with {first} in tensor '{tensor}': {error}") from None


def _united(facts: Facts, file: StatisticsFile, first: StatisticsFile) -> Facts:
    """What shards found out, taken together; what both have must be the same."""
    theirs = file.facts
    pairs = (("unreachable", facts.unreachable, theirs.unreachable), ("runtime", facts.runtime, theirs.runtime))
    disputed = [f"{name} of {key}" for name, a, b in pairs for key in a.keys() & b.keys() if a[key] != b[key]]
    disputed += [] if facts.pinned == theirs.pinned else ["pinned of tensors"]
    if disputed:
        raise DataError(
            f"{file} and {first} disagree about {min(disputed)}: they are not shards of one run; "
            "calibrate every shard with the same model, plan and kind of data"
        )
    return Facts({**facts.unreachable, **theirs.unreachable}, {**facts.runtime, **theirs.runtime}, facts.pinned)
