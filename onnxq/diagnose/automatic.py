"""The diagnosis at the end of a run: where it fails or a result is bad, and of low ones where somebody waits for it.

It evaluates dozens of models, which takes longer than all of effort 1. So up to that effort a run with results that can
be used, though they are low, ends with the command that finds the cause, unless somebody asks for a diagnosis. Who asks
for calibration alone (effort 0) wants it to be quick: there only a run that fails is diagnosed, and briefly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxq.diagnose.run import AUTOMATIC, BRIEF, diagnose
from onnxq.diagnose.text import summary_lines
from onnxq.errors import one_line_error
from onnxq.graph.write import weight_bytes
from onnxq.mixed_precision.subject import Subject
from onnxq.pipeline.explanation import Examine, Explanation, failed_diagnosis
from onnxq.pipeline.forecast import broken_off, fits
from onnxq.progress import OutOfTime, Progress
from onnxq.progress.time_limit import Part
from onnxq.ptq.method import State
from onnxq.ptq.search.schedule import DEFAULT
from onnxq.ptq.search.stage import LARGE
from onnxq.session.session import Session
from onnxq.verify import ResultCheck

ROUNDS, BRIEF_ROUNDS = 40.0, 12.0
"""Rounds (`onnxq.progress.tracker`) that a diagnosis takes."""

SHARES = {"noise": 0.5, "causes": 0.15, "remedies": 0.35}
"""Of its stages."""

BAD_SQNR_DB = 10.0
"""Results below this are of little use: their cause is looked for at any price."""

UNTRIED = "not tried: what improves weights and ranges (--effort 1)"


def examiner(session: Session, state: State) -> Examine | None:
    """What to call where a result of `state` is low; None where nobody wants it or it would take too long."""
    config = session.settings
    improved = config.effort > 0 or config.improvements is not None
    asked = "diagnose" in config.model_fields_set
    whole = improved or asked
    waits = asked or config.effort > DEFAULT
    if session.dataset is None or not config.diagnose or weight_bytes(state.graph.gs) > LARGE:
        return None

    def examine(results: Sequence[ResultCheck], *, failed: bool) -> Explanation | None:
        bad = improved and any(result.silent or result.sqnr_db < BAD_SQNR_DB for result in results)
        if not (waits or failed or bad):
            return None
        # Whatever goes wrong here, the run itself counts: its files, or why its checks have failed.
        try:
            if not fits(session, Part.DIAGNOSIS, "diagnose", ROUNDS if whole else BRIEF_ROUNDS):
                return None
            announce(session, ROUNDS if whole else BRIEF_ROUNDS)
            worst = [result.samples.worst for result in sorted(results, key=lambda one: one.sqnr_db) if result.samples]
            subject = Subject(replace(session, progress=_within(session)))
            found = diagnose(subject, state=state, budget=AUTOMATIC if whole else BRIEF, first=worst)
            lines = summary_lines(found) if improved else [*summary_lines(found), UNTRIED]
            return Explanation(tuple(lines), found.to_json(), found.remedied())
        except OutOfTime:
            broken_off(session, Part.DIAGNOSIS)
            return None
        except Exception as error:  # a fault of onnxq or of a plugin, which must not cost what is finished
            return failed_diagnosis(one_line_error(error))

    return examine


def announce(session: Session, rounds: float) -> None:
    """Tell what a diagnosis will take, for who waits."""
    for stage, share in SHARES.items():
        session.tracker.expect(stage, rounds * share)


def _within(session: Session) -> Progress:
    """Reports of a diagnosis, which end it where it has taken all of the time that a run may take."""
    if session.limit is None:
        return session.progress
    limit, page = session.limit, session.tracker.announced(("page",))

    def report(stage: str, done: int, total: int | None) -> None:
        if limit.remaining < page:
            raise OutOfTime
        session.progress(stage, done, total)

    return report
