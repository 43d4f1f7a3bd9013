"""Which quantized nodes stay float because the file is faster so: a search by timing, with accuracy as a constraint.

One group of nodes after another (`onnxq.latency.groups`) is left float. The file is written, and timed in turns with
the best one so far. A group stays float if the file is faster in two measurements one after the other, and no result
loses accuracy against the file in which all is quantized. In the end the best file is timed twice against that one, and
all is quantized where it is not faster. Parameters come from a few samples: they decide little about
the time, and the model is calibrated anew once it is known what is float.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnxq.config import Config
from onnxq.config.changes import merged
from onnxq.emit import emit
from onnxq.emit.saturation import with_unsigned_weights
from onnxq.errors import ConfigError, SpecError, UnsupportedError
from onnxq.latency.groups import Group, groups
from onnxq.ptq.method import Samples, State
from onnxq.ptq.search.sample_split import verification_samples
from onnxq.runtime.feeds import Feed
from onnxq.runtime.timing import Pace, in_turns, run_of_file
from onnxq.session.prepare import Prepared, make_plan
from onnxq.session.session import Session
from onnxq.temporary import temporary_folder
from onnxq.types import QParamsTable
from onnxq.types.tuning import Timed, Tuning
from onnxq.verify import CheckSamples, compare_outputs, sums_are_exact

LATENCY = "latency"
SAID_BY = "--for latency"

MOST_SECONDS = 60.0
"""The time of the whole search, as far as a candidate that was begun is finished."""

SHARE_OF_LIMIT = 0.5
"""Of what is left of a limit for the whole run; the rest is for calibration, files and checks."""

SECONDS_EACH, ROUNDS = 1.0, 25
"""Processor time of one measurement, and the rounds that are enough for it."""

GAIN = 1.02
"""A group stays float if the file is this many times as fast, and faster in three of four rounds."""

ALLOWED_LOSS_DB = 0.1
FEW_SAMPLES = 8

Stopwatch = Callable[[Path, Path, Feed], Pace]
"""Times a second file against a first one on a feed."""


def in_new_sessions(first: Path, second: Path, feed: Feed) -> Pace:
    """Times files in onnxruntime, in sessions of their own: one may be faster than the next by where its memory is."""
    return in_turns(run_of_file(first, feed), run_of_file(second, feed), seconds=SECONDS_EACH, rounds=ROUNDS)


@dataclass(frozen=True)
class _Candidate:
    """A file with some nodes in float; `accuracy` has the SQNR of its results, where it was compared."""

    config: Config
    path: Path
    accuracy: dict[str, float] | None = None


def tuned(session: Session, stopwatch: Stopwatch | None = None, clock: Callable[[], float] = time.monotonic) -> Session:
    """The session with settings that leave float what is faster so; `refuse_untimed` has let it through."""
    with session.clock.stage(LATENCY), temporary_folder() as folder:
        return _Search(session, stopwatch or in_new_sessions, clock, folder).run()


def refuse_untimed(session: Session) -> None:
    """Raise ConfigError where latency is asked for and cannot be measured; the data of the session has to be open."""
    if session.settings.optimize_for is None:
        return
    prepared = session.prepared
    if not prepared.backend.runs_in_onnxruntime:
        raise ConfigError(
            f"{session.settings.source('optimize_for')}: latency is measured in onnxruntime on this machine, which "
            f"says nothing about the target {prepared.backend.name}"
        )
    if session.dataset is None or session.ranks is not None:
        what = "there are no samples to run" if session.dataset is None else "several processes cannot agree about it"
        raise ConfigError(f"{session.settings.source('optimize_for')}: latency cannot be measured: {what}")


class _Search:
    def __init__(self, session: Session, stopwatch: Stopwatch, clock: Callable[[], float], folder: Path) -> None:
        assert session.dataset is not None
        self._session, self._stopwatch, self._clock, self._folder = session, stopwatch, clock, folder
        self._base = merged(session.settings, {("optimize_for",): None}, SAID_BY)
        self._samples = verification_samples(session.dataset, FEW_SAMPLES)
        self._feed = next(iter(self._samples))
        self._written = 0

    def run(self) -> Session:
        limit = self._session.limit
        seconds = MOST_SECONDS if limit is None else min(MOST_SECONDS, SHARE_OF_LIMIT * limit.remaining)
        started = self._clock()
        plain = best = self._candidate(())
        plan = make_plan(self._prepared(plain.config))
        wanted = groups(self._session.prepared.graph, plan)
        timed: list[Timed] = []
        floating: list[str] = []
        for number, group in enumerate(wanted):
            self._session.progress(LATENCY, number, len(wanted))
            if self._clock() - started > seconds:
                break
            nodes = tuple(name for name in group.nodes if name not in floating)
            if not nodes or {*nodes, *floating} >= {*plan.quantized}:
                continue
            found = self._tried(plain, best, group, floating, nodes)
            if found is None:
                continue
            entry, candidate = found
            timed.append(entry)
            loser = best if entry.kept else candidate
            if loser is not plain:
                loser.path.unlink()
            if entry.kept:
                best, plain = candidate, self._compared(plain)
                floating += nodes
        else:
            number = len(wanted)
        if floating and not self._twice_faster(plain, floating, best):  # of many groups, some are faster by chance
            best, timed = plain, [replace(entry, kept=False) for entry in timed]
        tuning = Tuning(tuple(timed), len(wanted) - number, self._clock() - started)
        return replace(self._session, settings=best.config).with_prepared(
            replace(self._session.prepared, config=best.config, tuning=tuning)
        )

    def _tried(
        self, plain: _Candidate, best: _Candidate, group: Group, floating: Sequence[str], nodes: tuple[str, ...]
    ) -> tuple[Timed, _Candidate] | None:
        """What a group in float gives; None where the target cannot have it so, or has the same file."""
        try:
            candidate = self._candidate((*floating, *nodes))
        except UnsupportedError:
            return None
        if candidate.path.read_bytes() == best.path.read_bytes():
            candidate.path.unlink()
            return None  # its neighbours have the same quantizers without it, and onnxruntime fuses it all the same
        pace = self._stopwatch(best.path, candidate.path, self._feed)
        faster = _is_faster(pace) and _is_faster(self._stopwatch(best.path, candidate.path, self._feed))
        lost = None
        if faster:
            candidate = self._compared(candidate)
            lost = _lost_db(self._compared(plain), candidate)
        kept = lost is not None and lost <= ALLOWED_LOSS_DB
        return Timed(group.name, nodes, pace.times_as_fast, lost, kept), candidate

    def _twice_faster(self, plain: _Candidate, floating: Sequence[str], best: _Candidate) -> bool:
        """Whether the best file is faster than the plain one, even if its weights have to be stored in the slow form.

        Where kernels saturate, that is decided when a file is written, perhaps otherwise for the two.
        """
        try:
            slowest = best if sums_are_exact() else self._candidate(floating, unsigned=True)
        except (SpecError, UnsupportedError):
            slowest = best  # these weights have one form
        return all(_is_faster(self._stopwatch(plain.path, slowest.path, self._feed)) for _ in range(2))

    # ---- candidates ------------------------------------------------------------------------------------------------

    def _candidate(self, nodes: Sequence[str], *, unsigned: bool = False) -> _Candidate:
        config = self._config(nodes)
        prepared = self._prepared(config)
        few = Samples(self._samples.dataset, self._samples.numbers)
        state = self._session.recalibrated(State(prepared.graph, make_plan(prepared), QParamsTable()), few)
        plan, qparams = state.plan, state.qparams
        if unsigned:
            plan, qparams = with_unsigned_weights(prepared.graph, plan, qparams)
        self._written += 1
        name = f"candidate{self._written}"
        emitted = emit(prepared.graph, plan, qparams, prepared.backend, self._folder, name)
        return _Candidate(config, next(path for path in emitted.files if path.suffix == ".onnx"))

    def _config(self, nodes: Sequence[str]) -> Config:
        config = merged(self._base, {("node", name, "skip"): True for name in nodes}, SAID_BY)
        # What ran inside of a layer may be quantized by itself as soon as the layer is float.
        before = make_plan(self._prepared(self._base))
        alone = [name for name in make_plan(self._prepared(config)).quantized if name in before.fused]
        return merged(config, {("node", name, "skip"): True for name in alone}, SAID_BY) if alone else config

    def _prepared(self, config: Config) -> Prepared:
        return replace(self._session.prepared, config=config)

    def _compared(self, candidate: _Candidate) -> _Candidate:
        if candidate.accuracy is not None:
            return candidate
        checks = compare_outputs(
            self._session.original, candidate.path, CheckSamples(self._samples, len(self._samples))
        )
        found = {result.name: result.sqnr_db for check in checks for result in check.results}
        return replace(candidate, accuracy=found)


def _is_faster(pace: Pace) -> bool:
    return pace.times_as_fast >= GAIN and pace.quartiles[0] > 1.0


def _lost_db(before: _Candidate, after: _Candidate) -> float:
    """What the result that loses most has lost; one that only one file has counts as lost."""
    one, other = before.accuracy or {}, after.accuracy or {}
    exact = float("inf")
    lost = (
        0.0 if value == other.get(name) == exact else value - other.get(name, -exact) for name, value in one.items()
    )
    return max(lost, default=0.0)
