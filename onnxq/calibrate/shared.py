"""Statistics gathered by several processes, each on its own samples, and put together by all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from onnxq.calibrate.gather import Gathered, check_mergeable, gather
from onnxq.calibrate.merge import merge_statistics
from onnxq.calibrate.resume import gather_into, gathered_from
from onnxq.calibrate.statistics_file import Facts, StatisticsFile, read_statistics, write_statistics
from onnxq.errors import DataError, OnnxqError
from onnxq.graph import Graph
from onnxq.runtime.collect import Engine, Progress
from onnxq.runtime.feeds import Feed
from onnxq.runtime.samples import Shard
from onnxq.runtime.session import describe_runtime
from onnxq.runtime.workers import available_cores
from onnxq.types import Placement


class Peers(Protocol):
    """Processes that work together, such as `onnxq.distributed.Ranks`."""

    @property
    def number(self) -> int: ...

    @property
    def count(self) -> int: ...

    @property
    def local(self) -> int: ...

    def share(self, value: Any) -> list[Any]: ...


def gather_shared(
    peers: Peers,
    graph: Graph,
    leaders: Sequence[Placement],
    dataset: Iterable[Feed],
    *,
    path: Path | None = None,
    engine: Engine | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Gathered:
    """`gather` (`gather_into` where there is a `path`) over the samples of all processes; all get the whole result.

    Each process keeps a file of its own beside `path` until the whole is written, so that a run that was cut off goes
    on. A whole that is there already is used and added to by the first process alone. An error in one process is an
    error in all.
    """
    check_mergeable(leaders)
    if path is not None and not fresh and peers.share(path.exists())[0]:
        return _first_alone(peers, path, graph, leaders, dataset, engine=engine, progress=progress)
    engine = engine or Engine()
    if engine.workers is None:
        engine = replace(engine, workers=max(1, available_cores() // peers.local))
    shard = Shard(peers.number + 1, peers.count)
    own = None if path is None else path.with_name(f"{path.name}.{shard.number}-of-{shard.count}")
    outcome: StatisticsFile | str
    try:
        if own is None:
            part = gather(graph, leaders, dataset, engine=engine, shard=shard, progress=progress)
            outcome = _unnamed(part, shard, engine.provider)
        else:
            part = gather_into(own, graph, leaders, dataset, engine=engine, shard=shard, fresh=fresh, progress=progress)
            outcome = read_statistics(own)
    except OnnxqError as error:
        outcome = str(error)
    outcomes = peers.share(outcome)
    failed = [text for text in outcomes if isinstance(text, str)]
    if failed:
        raise DataError(failed[0])
    whole = merge_statistics(outcomes)
    if path is not None and own is not None:
        if peers.number == 0:
            write_statistics(path, whole)
        peers.share(None)  # the whole is there before any part of it goes
        own.unlink()
    return replace(gathered_from(whole), passes=part.passes, seconds=part.seconds, notes=part.notes)


def _first_alone(
    peers: Peers,
    path: Path,
    graph: Graph,
    leaders: Sequence[Placement],
    dataset: Iterable[Feed],
    *,
    engine: Engine | None,
    progress: Progress | None,
) -> Gathered:
    """`gather_into` by the first process: mostly there is nothing to run, and what is there cannot be divided again."""
    outcome: Gathered | str = ""
    if peers.number == 0:
        try:
            outcome = gather_into(path, graph, leaders, dataset, engine=engine, progress=progress)
        except OnnxqError as error:
            outcome = str(error)
    found: Gathered | str = peers.share(outcome)[0]
    if isinstance(found, str):
        raise DataError(found)
    return found


def _unnamed(part: Gathered, shard: Shard, provider: str | None) -> StatisticsFile:
    """The statistics in the form that merges, without the hashes that only files need."""
    return StatisticsFile(
        model="",
        samples="0",
        sample_count=part.samples,
        statistics=part.statistics,
        shard=(shard.number, shard.count),
        facts=Facts(part.unreachable, describe_runtime(provider), part.beyond),
    )
