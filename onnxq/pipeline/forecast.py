"""What the files of a run will take, and what a limit of time has left out of a run."""

from __future__ import annotations

from dataclasses import replace

from onnxq.config import Config
from onnxq.json_file import JsonObject
from onnxq.progress import TimeLimit, Tracker
from onnxq.progress.durations import duration_text, read_duration
from onnxq.progress.time_limit import LeftOut, Part
from onnxq.session.session import Session

EMIT, VERIFY, PAGE = 0.4, 2.0, 0.5
"""Rounds (`onnxq.progress.tracker`) that writing the files, checking them and drawing the page take."""

LAYERS_ROUNDS = 2.0
"""What the noise of the layers adds to the page."""

NAMES = {Part.DIAGNOSIS: "diagnosis", Part.LAYERS: "noise of the layers on the page"}


def announce_files(tracker: Tracker, config: Config) -> None:
    """Tell a tracker what comes behind the search."""
    tracker.expect("emit", EMIT)
    tracker.expect("verify", VERIFY)
    if config.report != "no":
        layers = config.report == "full" or (config.report is None and (config.effort or config.improvements))
        tracker.expect("page", PAGE + (LAYERS_ROUNDS if layers and config.time_limit is None else 0.0))


def limited(session: Session) -> Session:
    """The session with the limit that its settings have, from when its tracker began."""
    given, tracker = session.settings.time_limit, session.tracker
    if given is None:
        return session
    return replace(session, limit=TimeLimit(read_duration(given), tracker.started, tracker.now))


def fits(session: Session, part: Part, kind: str, rounds: float) -> bool:
    """Whether there is time for a part that takes so many rounds; where there is not, it is noted."""
    limit, tracker = session.limit, session.tracker
    if limit is None:
        return True
    expected = tracker.seconds_of(kind, rounds)
    behind = tracker.announced(("page",)) if part is Part.DIAGNOSIS else 0.0
    if limit.remaining > 0 and (expected or 0.0) + behind <= limit.remaining:
        return True
    limit.left_out.append(LeftOut(part, NAMES[part], None, expected))
    return False


def broken_off(session: Session, part: Part) -> None:
    """A part that was begun has taken longer than expected."""
    assert session.limit is not None
    session.limit.left_out.append(LeftOut(part, NAMES[part], None, None, begun=True))


def limit_json(limit: TimeLimit) -> JsonObject:
    """The entry of report.json."""
    whole = limit.would_take()
    return {
        "seconds": limit.seconds,
        "taken": round(limit.taken, 3),
        "kept": limit.kept,
        "left_out": [
            {
                "part": one.part.value,
                "what": one.what,
                **({} if one.step is None else {"step": one.step}),
                "expected_seconds": None if one.seconds is None else round(one.seconds, 3),
                "begun": one.begun,
            }
            for one in limit.left_out
        ],
        "would_take_seconds": None if whole is None else round(whole, 3),
    }


def limit_warnings(limit: TimeLimit) -> list[str]:
    """What to say of a limit that could not be kept: the files are there all the same."""
    if limit.kept:
        return []
    reason = (
        "everything that can be left out was"
        if limit.left_out
        else "what a run cannot leave out takes longer than that"
    )
    return [
        f"the time limit of {duration_text(limit.seconds)} was not kept, the run took {duration_text(limit.taken)}: "
        f"{reason}. Fewer samples (--samples) take less"
    ]


def repeatable(config: Config, limit: TimeLimit, *, searched: bool) -> Config:
    """The settings that repeat what a run under a limit did, without a clock; `searched`: any step was tried."""
    changes: JsonObject = {"time_limit": None}
    steps = tuple(f"{one.step}:{one.what}" for one in limit.steps())
    left_out = {one.part for one in limit.left_out}
    if steps:
        changes["skip_steps"] = (*config.skip_steps, *steps)
    if Part.STEP in left_out and not searched:
        changes |= {"effort": 0, "improvements": None, "skip_steps": ()}
    if Part.DIAGNOSIS in left_out:
        changes["diagnose"] = False
    if Part.LAYERS in left_out:
        changes["report"] = "quick"
    return config.model_copy(update=changes)
