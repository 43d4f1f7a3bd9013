"""Many cases one after the other, on one or more cores, with their findings kept as files."""

from __future__ import annotations

import multiprocessing
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.fuzz.cases import Case, make_case, numbers
from tools.fuzz.corpus import Corpus
from tools.fuzz.driver import Limits, run_case
from tools.fuzz.findings import Cause, Finding, cause_of, collect
from tools.fuzz.kinds import Kind
from tools.fuzz.outcomes import Ended, Outcome, classify
from tools.fuzz.shrink import shrink

KEPT = 3
"""How many cases of one finding are kept as files."""


@dataclass(frozen=True)
class Settings:
    seed: int
    inputs: int
    first: int = 0
    kinds: tuple[Kind, ...] = tuple(Kind)
    jobs: int = 1
    keep: Path | None = None
    limits: Limits | None = None
    shrink: bool = False


@dataclass
class Tally:
    """Counts of a campaign, and everything that ended badly."""

    seed: int
    outcomes: Counter[tuple[Kind, Outcome]] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    targets: set[str] = field(default_factory=set)
    bad: list[tuple[Case, Ended, Outcome]] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def inputs(self) -> int:
        return sum(self.outcomes.values())

    def findings(self) -> list[Finding]:
        return collect(self.bad)


Said = tuple[Case, Ended, Outcome]
Told = Callable[[Tally, Case, Outcome], None]


def run_campaign(settings: Settings, corpus: Corpus, folder: Path, told: Told) -> Tally:
    """Run the cases; `told` hears of each of them."""
    tally = Tally(settings.seed)
    kept: Counter[Cause] = Counter()
    start = time.monotonic()
    for case, ended, outcome in _ended(settings, corpus, folder):
        tally.outcomes[case.kind, outcome] += 1
        tally.commands[case.command] += 1
        tally.targets.add(case.target)
        tally.cpu_seconds += ended.cpu_seconds
        tally.seconds = time.monotonic() - start
        if not outcome.good:
            tally.bad.append((case, ended, outcome))
            cause, _ = cause_of(case, ended, outcome)
            kept[cause] += 1
            if settings.keep is not None and kept[cause] <= KEPT:
                _keep(settings, corpus, folder / "kept", case, cause)
        told(tally, case, outcome)
    return tally


def _ended(settings: Settings, corpus: Corpus, folder: Path) -> Iterator[Said]:
    wanted = list(numbers(settings.seed, settings.kinds, settings.inputs, settings.first))
    if settings.jobs == 1:
        for number in wanted:
            yield run_number(settings, corpus, folder / "job", number)
        return
    pieces = [(settings, corpus, folder, wanted[index :: settings.jobs * 8]) for index in range(settings.jobs * 8)]
    with multiprocessing.get_context("fork").Pool(settings.jobs) as pool:
        for said in pool.imap_unordered(_run_piece, pieces):
            yield from said


def _run_piece(piece: tuple[Settings, Corpus, Path, Sequence[int]]) -> list[Said]:
    settings, corpus, folder, wanted = piece
    own = folder / multiprocessing.current_process().name
    return [run_number(settings, corpus, own, number) for number in wanted]


def run_number(settings: Settings, corpus: Corpus, folder: Path, number: int) -> Said:
    return run_one(make_case(settings.seed, number, corpus), corpus, folder, settings.limits)


def run_one(case: Case, corpus: Corpus, folder: Path, limits: Limits | None = None) -> Said:
    ended = run_case(case, corpus, folder, limits=limits)
    shutil.rmtree(folder, ignore_errors=True)
    return case, ended, classify(ended)


def shrunk(case: Case, cause: Cause, corpus: Corpus, folder: Path, limits: Limits | None = None) -> Case:
    """The case with as few mutations as show the same finding."""

    def still_found(fewer: Case) -> bool:
        _, ended, outcome = run_one(fewer, corpus, folder, limits)
        return not outcome.good and cause_of(fewer, ended, outcome)[0] == cause

    return shrink(case, still_found)


def _keep(settings: Settings, corpus: Corpus, folder: Path, case: Case, cause: Cause) -> None:
    """The files of a case with its command and what it said, with fewer mutations where that was asked for."""
    assert settings.keep is not None
    if settings.shrink:
        case = shrunk(case, cause, corpus, folder, settings.limits)
    ended = run_case(case, corpus, folder, limits=settings.limits)
    target = settings.keep / f"{case.seed}-{case.number}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / "case" / "in", target / "in")
    command = (folder / "said" / "command").read_text().split("\0")
    moved = [argument.replace(str(folder / "case"), str(target)) for argument in command]
    (target / "command.sh").write_text(f"onnxq {shlex.join(moved)}\n")
    about = f"{case.shown()}\n{cause.outcome.value}: {cause.what} in {cause.where}\n"
    (target / "about.txt").write_text(
        f"{about}{ended.does_not_load}\n{chr(10).join(ended.leftovers)}\n", errors="replace"
    )
    (target / "stderr.txt").write_text(ended.stderr[-100_000:], errors="replace")
    (target / "stdout.txt").write_text(ended.stdout[-20_000:], errors="replace")
    shutil.rmtree(folder, ignore_errors=True)
