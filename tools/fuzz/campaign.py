"""Many cases one after the other, on one or more cores, with their findings kept as files."""

from __future__ import annotations

import hashlib
import multiprocessing
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.fuzz.cases import Case, make_case, numbers
from tools.fuzz.corpus import Corpus
from tools.fuzz.driver import run_case
from tools.fuzz.findings import Cause, Finding, cause_of, collect
from tools.fuzz.formats.format import Mutation
from tools.fuzz.isolation import Limits
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
    start = time.monotonic()
    for case, ended, outcome in _ended(settings, corpus, folder):
        tally.outcomes[case.kind, outcome] += 1
        tally.commands[case.command] += 1
        tally.targets.add(case.target)
        tally.cpu_seconds += ended.cpu_seconds
        tally.seconds = time.monotonic() - start
        if not outcome.good:
            tally.bad.append((case, ended, outcome))
        told(tally, case, outcome)
    return tally


def _ended(settings: Settings, corpus: Corpus, folder: Path) -> Iterator[Said]:
    wanted = list(numbers(settings.seed, settings.kinds, settings.inputs, settings.first))
    if settings.jobs == 1:
        for number in wanted:
            yield run_number(settings, corpus, folder / "job", number)
        return
    # Mutations are functions, which cannot be sent: the processes are forks that know them, and answer with numbers.
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    shares = [wanted[job :: settings.jobs] for job in range(settings.jobs)]
    for job, share in enumerate(shares):
        arguments = (settings, corpus, folder / f"job{job}", share, answers)
        context.Process(target=_run_share, args=arguments, daemon=True).start()
    for _ in wanted:
        number, left, ended, outcome = answers.get()
        case = make_case(settings.seed, number, corpus)
        yield replace(case, mutations=tuple(case.mutations[place] for place in left)), ended, outcome


def _run_share(settings: Settings, corpus: Corpus, folder: Path, share: Sequence[int], answers: Any) -> None:
    for number in share:
        whole = make_case(settings.seed, number, corpus).mutations
        case, ended, outcome = run_number(settings, corpus, folder, number)
        answers.put((number, _places(whole, case.mutations), ended, outcome))


def _places(whole: Sequence[Mutation], part: Sequence[Mutation]) -> list[int]:
    """Where the mutations of a shrunk case stand among those of the whole one; they are in the same order."""
    found: list[int] = []
    for place, mutation in enumerate(whole):
        if len(found) < len(part) and mutation == part[len(found)]:
            found.append(place)
    return found


def run_number(settings: Settings, corpus: Corpus, folder: Path, number: int) -> Said:
    """Run a case; where it ends badly, shrink it and keep its files, as the settings say."""
    case = make_case(settings.seed, number, corpus)
    ended = run_case(case, corpus, folder, limits=settings.limits)
    outcome = classify(ended)
    if not outcome.good and not ended.fuzzer_error:
        cause, _ = cause_of(case, ended, outcome)
        if settings.keep is not None and _is_new(settings.keep, cause):
            if settings.shrink and outcome is not Outcome.HANG:  # each attempt would take all the time there is
                case = shrunk(case, cause, corpus, folder, settings.limits)
                ended = run_case(case, corpus, folder, limits=settings.limits)
                outcome = classify(ended)
            _keep(settings.keep, folder, case, ended, cause)
    shutil.rmtree(folder, ignore_errors=True)
    return case, ended, outcome


def shrunk(case: Case, cause: Cause, corpus: Corpus, folder: Path, limits: Limits | None = None) -> Case:
    """The case with as few mutations as show the same finding."""

    def still_found(fewer: Case) -> bool:
        ended = run_case(fewer, corpus, folder, limits=limits)
        outcome = classify(ended)
        return not outcome.good and cause_of(fewer, ended, outcome)[0] == cause

    return shrink(case, still_found)


def _digest(cause: Cause) -> str:
    return hashlib.sha256(repr(cause).encode("utf-8", "replace")).hexdigest()[:8]


def _is_new(keep: Path, cause: Cause) -> bool:
    return len(list(keep.glob(f"{_digest(cause)}-*"))) < KEPT


def _keep(keep: Path, folder: Path, case: Case, ended: Ended, cause: Cause) -> None:
    """The files of a case with its command and what it said, in a folder named after the finding and the number."""
    target = keep / f"{_digest(cause)}-{case.number}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / "case" / "in", target / "in")
    command = (folder / "said" / "command").read_text().split("\0")
    moved = [argument.replace(str(folder / "case"), str(target)) for argument in command]
    about = (
        case.shown(),
        f"{cause.outcome.value}: {cause.what} in {cause.where}",
        ended.does_not_load,
        *ended.leftovers,
    )
    _write(target / "command.sh", f"onnxq {shlex.join(moved)}\n")
    _write(target / "about.txt", "\n".join(about))
    _write(target / "stderr.txt", ended.stderr[-100_000:])
    _write(target / "stdout.txt", ended.stdout[-20_000:])


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
