"""Statistics that live in a file: reused, extended, or gone on with after a run that was cut off.

While a run goes on, what it has seen so far is beside the result, in FILE.partial, and replaced every few seconds. A
run that finds FILE or FILE.partial goes on from there, after it has made sure that they belong to the same model and to
the samples that come first in its data. Nothing else is ever used. Statistics that were collected beside other tensors
of If, Loop and Scan bodies (`onnxq.runtime.pinned`) are collected again, and a note says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from onnxq.calibrate.gather import Gathered, StatisticsOf, check_mergeable, wanted_statistics
from onnxq.calibrate.identity import SampleHash, model_identity
from onnxq.calibrate.statistics_file import Facts, StatisticsFile, check_same, read_statistics, write_statistics
from onnxq.errors import DataError
from onnxq.graph import Graph
from onnxq.runtime.collect import Engine, Journal, Progress, collect
from onnxq.runtime.feeds import Feed
from onnxq.runtime.pinned import pinned_beyond
from onnxq.runtime.samples import Sample, Shard
from onnxq.runtime.session import describe_runtime
from onnxq.types import Placement

SAVE_SECONDS = 5.0
SAVING_SHARE = 0.05
"""Of the time, at most this much is spent on saving."""


def gather_into(
    path: str | Path,
    graph: Graph,
    leaders: Sequence[Placement],
    dataset: Iterable[Feed],
    *,
    engine: Engine | None = None,
    shard: Shard | None = None,
    fresh: bool = False,
    save_seconds: float = SAVE_SECONDS,
    progress: Progress | None = None,
) -> Gathered:
    """`gather`, with the statistics in the file `path`, as histograms wherever these can replace ranges.

    What the file holds already is not collected again. Data that begins with the samples of the file and goes on adds
    to it. `fresh` starts from nothing, whatever is there. A file of another model, other data or another shard is a
    DataError, and so is a damaged one; the file stays as it is.
    """
    if shard is not None and shard.count > 1:
        check_mergeable(leaders)
    wanted = wanted_statistics(leaders, reusable=True)
    keeper = _Keeper(
        Path(path),
        cache(partial(model_identity, graph)),
        shard or Shard(),
        wanted,
        pinned_beyond(graph, wanted),
        describe_runtime(None if engine is None else engine.provider),
        fresh,
    )
    report = collect(
        graph,
        dataset,
        {tensor: list(kinds.values()) for tensor, kinds in keeper.statistics.items()},
        engine=engine,
        shard=keeper.shard,
        progress=progress,
        journal=Journal(keeper.see, keeper.save, save_seconds, keeper.check_all_seen, keeper.unreachable),
    )
    keeper.finish()
    return Gathered(
        keeper.statistics,
        report.samples,
        report.passes,
        report.seconds,
        keeper.unreachable,
        (*keeper.notes, *report.notes),
        keeper.beyond,
    )


def gathered_from(file: StatisticsFile) -> Gathered:
    """What a complete file holds, for use without the data."""
    number, count = file.shard
    if not file.complete:
        raise DataError(f"{file} is not complete: finish it with the command that began it")
    if count > 1:
        raise DataError(f"{file} is shard {number} of {count}: put all shards together with 'onnxq merge' first")
    facts = file.facts
    return Gathered(file.statistics, file.sample_count, unreachable=facts.unreachable, beyond=facts.pinned)


def partial_path(path: Path) -> Path:
    """Where a run keeps what it has seen so far."""
    return path.with_name(f"{path.name}.partial")


def _includes(begun: StatisticsFile, whole: StatisticsFile) -> bool:
    return begun.sample_count >= whole.sample_count and all(
        kinds.keys() <= begun.statistics.get(tensor, {}).keys() for tensor, kinds in whole.statistics.items()
    )


def _runtime_text(runtime: Mapping[str, str]) -> str:
    return f"onnxruntime {runtime.get('onnxruntime', '?')} on {runtime.get('provider', '?')}"


class _Keeper:
    """The statistics of a run, together with what tells where they come from."""

    def __init__(
        self,
        path: Path,
        identity: Callable[[str], str],
        shard: Shard,
        wanted: StatisticsOf,
        beyond: tuple[str, ...],
        runtime: Mapping[str, str],
        fresh: bool,
    ) -> None:
        self.shard = shard
        self.beyond = beyond
        self.notes: list[str] = []
        self._runtime = runtime
        self.unreachable: dict[str, str] = {}
        self._path = path
        self._identity = identity
        self._hash = SampleHash()
        self._samples = 0
        self._save_again = 0.0
        self._before = None if fresh else self._found()
        self._model = identity("") if self._before is None else self._before.model
        self._untouched = self._before is not None and self._before.complete
        self.statistics = wanted
        if self._before is not None:
            self._adopt(self._before)

    def _found(self) -> StatisticsFile | None:
        """What there is to go on with: the file, or what is left of a run that had more than the file when it ended."""
        whole, begun = (self._read(path) for path in (self._path, partial_path(self._path)))
        if whole is None or (begun is not None and _includes(begun, whole)):
            return begun
        return whole

    def _read(self, path: Path) -> StatisticsFile | None:
        if not path.exists():
            return None
        file = read_statistics(path)
        check_same(file, model=self._identity(file.model))
        if file.shard != (self.shard.number, self.shard.count):
            raise DataError(
                f"{file} holds shard {file.shard[0]}/{file.shard[1]}, and this run is for shard {self.shard}: "
                "use another file, or start again with --fresh"
            )
        if file.facts.runtime != self._runtime:
            raise DataError(
                f"{file} was collected with {_runtime_text(file.facts.runtime)}, and this run has "
                f"{_runtime_text(self._runtime)}, which may round differently: use another file, or start again with "
                "--fresh"
            )
        if file.facts.pinned != self.beyond:
            others = ", ".join(f"'{name}'" for name in sorted({*file.facts.pinned} ^ {*self.beyond})[:3])
            self.notes.append(
                f"{file} was collected with other tensors inside of If, Loop or Scan bodies ({others}), beside which "
                "values may be rounded differently: everything is collected again"
            )
            return None
        return file

    def _adopt(self, file: StatisticsFile) -> None:
        """Go on with the file's statistics, those that this run would not need included."""
        self.unreachable = dict(file.facts.unreachable)
        for tensor, kinds in self.statistics.items():
            self._untouched = self._untouched and not kinds.keys() - file.statistics.get(tensor, {}).keys()
        for tensor, held in file.statistics.items():
            self.statistics.setdefault(tensor, {}).update(held)

    def see(self, sample: Sample) -> None:
        """Called with every sample before it is run: those of the file must be the first ones."""
        held = 0 if self._before is None else self._before.sample_count
        if self._samples == held:
            self._untouched = False
        missing = held - self._samples
        self._hash.add(sample.number, sample.feed)
        self._samples += sample.rows
        # Rows that stay together may pass over the last sample of the file: then they were batched in another way.
        if self._before is not None and 0 < missing <= sample.rows:
            check_same(self._before, model=self._model, samples=self._hash.hexdigest())

    def check_all_seen(self) -> None:
        """Called at the end of the data, which must have all samples of the file."""
        if self._before is not None and self._samples < self._before.sample_count:
            raise DataError(
                f"{self._before} holds {self._before.sample_count} samples, and the data has only {self._samples}: "
                "use another file, or start again with --fresh"
            )

    def save(self) -> None:
        """Write what was seen so far beside the file, unless that was done a moment ago and takes long."""
        started = time.monotonic()
        if started < self._save_again:
            return
        self._write(partial_path(self._path), complete=False)
        self._save_again = time.monotonic() + (time.monotonic() - started) / SAVING_SHARE

    def finish(self) -> None:
        """Write the file, unless it holds everything already."""
        if not self._untouched:
            self._write(self._path, complete=True)
        partial_path(self._path).unlink(missing_ok=True)

    def _write(self, path: Path, *, complete: bool) -> None:
        file = StatisticsFile(
            self._model,
            self._hash.hexdigest(),
            self._samples,
            self.statistics,
            complete=complete,
            shard=(self.shard.number, self.shard.count),
            facts=Facts(self.unreachable, self._runtime, self.beyond),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_statistics(path, file)
