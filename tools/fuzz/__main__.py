"""`python -m tools.fuzz`: fuzz onnxq, or run one case again. Exits with 1 when something was found."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

# Before numpy is imported: the driver must have a single thread, and small models need no more.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

from tools.fuzz import driver
from tools.fuzz.campaign import Settings, Tally, run_campaign, run_number
from tools.fuzz.cases import Case, kind_of
from tools.fuzz.corpus import Corpus, build_corpus
from tools.fuzz.findings import cause_of
from tools.fuzz.isolation import Limits
from tools.fuzz.kinds import Kind
from tools.fuzz.outcomes import Outcome
from tools.fuzz.summary import document, table


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=7, help="the same seed gives the same inputs")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--only", type=_kinds, default=tuple(Kind), help=", ".join(kind.label for kind in Kind))
    parser.add_argument("--keep", type=Path, help="folder for the files of what was found")
    parser.add_argument("--json", type=Path, help="write the counts and findings into this file")
    parser.add_argument("--markdown", type=Path, help="write the table into this file, now and then")
    parser.add_argument("--cpu-seconds", type=int, help="processor time of one input without torch")
    parser.add_argument("--case", type=int, help="run this number alone and show what it says")
    parser.add_argument("--shrink", action="store_true", help="leave out mutations that a finding does not need")
    return parser


def _kinds(text: str) -> tuple[Kind, ...]:
    by_label = {kind.label: kind for kind in Kind}
    unknown = [label for label in text.split(",") if label not in by_label]
    if unknown:
        raise argparse.ArgumentTypeError(f"no kind '{unknown[0]}': {', '.join(by_label)}")
    return tuple(by_label[label] for label in text.split(","))


def main(arguments: Sequence[str] | None = None) -> int:
    given = make_parser().parse_args(arguments)

    driver.warm_up()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the folder below is removed
    limits = None if given.cpu_seconds is None else Limits(cpu_seconds=given.cpu_seconds)
    kinds = given.only if given.case is None else (kind_of(given.seed, given.case),)
    folder = Path(tempfile.mkdtemp(prefix="onnxq-fuzz-"))
    try:
        corpus = build_corpus(folder / "corpus", driver.make_runner(folder / "making"), kinds)
        settings = Settings(given.seed, given.inputs, given.first, kinds, given.jobs, given.keep, limits, given.shrink)
        if given.case is not None:
            return _show(settings, corpus, folder, given.case)
        last = time.monotonic()

        def told(tally: Tally, case: Case, outcome: Outcome) -> None:
            nonlocal last
            if not outcome.good:
                print(f"{case.number}: {outcome.value}: {case.shown()}"[:300])
            if time.monotonic() - last > 30:
                last = time.monotonic()
                print(f"{tally.inputs} inputs, {len(tally.findings())} findings, {tally.inputs / tally.seconds:.1f}/s")
                if given.markdown:
                    given.markdown.write_text(table(tally))
            sys.stdout.flush()

        tally = run_campaign(settings, corpus, folder / "work", told)
        print(table(tally))
        if given.markdown:
            given.markdown.write_text(table(tally))
        if given.json:
            given.json.write_text(json.dumps(document(tally), indent=2))
        return 1 if tally.bad else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _show(settings: Settings, corpus: Corpus, folder: Path, number: int) -> int:
    """Run one case, with fewer mutations where that was asked for, and show everything about it."""
    case, ended, outcome = run_number(settings, corpus, folder / "work", number)
    print(case.shown())
    print(ended.stdout, ended.stderr, ended.fuzzer_error, sep="\n")
    print(replace(ended, stdout="", stderr="", fuzzer_error=""))
    print(outcome.value)
    if not outcome.good:
        print(cause_of(case, ended, outcome)[0])
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
