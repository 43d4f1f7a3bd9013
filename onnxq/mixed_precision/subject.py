"""What a study is about: the arguments that sensitivity, search, restore_layers and diagnose have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypedDict, TypeVar, cast

from onnxq.config import ConfigSource
from onnxq.passes import Pass
from onnxq.progress import Progress
from onnxq.progress.bar import watched
from onnxq.ptq.search.evaluator import UserMetric
from onnxq.session.prepare import Model
from onnxq.session.session import Session, open_session
from onnxq.warned import warn_of

BestBy = Literal["max", "min"]


@dataclass(frozen=True)
class Subject:
    """What is studied, and how it is evaluated: the arguments that sensitivity, search and hold have in common.

    model        a path, a ModelProto or a Graph; backend, data, config and passes as `onnxq.quantize` has them. Or a
                 session that has all of these
    evaluate_on  samples, and labels if the metric needs them (`onnxq.mixed_precision.evaluation`); None takes
                 calibration samples
    labels       the name of the labels among the arrays
    samples      evaluate on at most this many samples
    metric       sqnr_db, kl, agreement, accuracy, module:function or a function of (outputs by name, labels)
    best_by      "max" or "min" for a function of one's own; the others know
    cache        folder in which scores and statistics are kept; None keeps nothing
    progress     as `onnxq.quantize` has it
    """

    model: Model | Session
    backend: Any = None
    data: Any = None
    config: ConfigSource = None
    passes: Sequence[str | Pass] = ()
    evaluate_on: Any = None
    labels: str | None = None
    samples: int | None = None
    metric: str | UserMetric = "sqnr_db"
    best_by: BestBy | None = None
    cache: str | Path | None = None
    progress: Progress | bool | None = None

    def open(self) -> Session:
        """The session of the model, with its data."""
        if isinstance(self.model, Session):
            return self.model
        session = open_session(
            self.model,
            backend=self.backend,
            data=self.data,
            config=self.config,
            passes=self.passes,
            progress=None if isinstance(self.progress, bool) else self.progress,
        )
        session.open_data(required=True)
        return session


class About(TypedDict, total=False):
    """The fields of a Subject behind its model, as arguments of the functions that study one."""

    backend: Any
    data: Any
    config: ConfigSource
    passes: Sequence[str | Pass]
    evaluate_on: Any
    labels: str | None
    samples: int | None
    metric: str | UserMetric
    best_by: BestBy | None
    cache: str | Path | None
    progress: Progress | bool | None


class Studied(Protocol):
    """What a study gives back: it has notes for the user."""

    @property
    def notes(self) -> tuple[str, ...]: ...


P = ParamSpec("P")
R = TypeVar("R", bound=Studied)


def study(
    title: str,
) -> Callable[[Callable[Concatenate[Subject, P], R]], Callable[Concatenate[Subject | Model | Session, P], R]]:
    """Let a function of a subject take a model and the fields of a subject as well (`**about: Unpack[About]`).

    It gets the bar that `progress` asks for, and its notes are warnings; a session has its own bar, and who opens one
    shows the notes.
    """

    def decorate(
        function: Callable[Concatenate[Subject, P], R],
    ) -> Callable[Concatenate[Subject | Model | Session, P], R]:
        signature = _signature(function)

        @wraps(function)
        def run(model: Subject | Model | Session, *args: Any, **given: Any) -> R:
            signature.bind(model, *args, **given)  # a name that nobody knows is a TypeError
            about = {name: given.pop(name) for name in _FIELDS if name in given}
            if isinstance(model, Subject):
                if about:
                    raise TypeError(f"{function.__name__}() has got a Subject: {', '.join(about)} belong into it")
                subject = model
            else:
                subject = Subject(model, **about)
            if isinstance(subject.model, Session):
                return function(subject, *args, **given)
            with watched(subject.progress, title) as tracker:
                result = function(replace(subject, progress=tracker), *args, **given)
                tracker.finish()
            warn_of(result.notes, stacklevel=2)
            return result

        run.__signature__ = signature  # type: ignore[attr-defined]
        return cast(Callable[Concatenate[Subject | Model | Session, P], R], run)

    return decorate


_FIELDS = tuple(field.name for field in fields(Subject) if field.name != "model")


def _signature(function: Callable[..., object]) -> inspect.Signature:
    """That of the function with the fields of a subject spelt out, for help() and editors."""
    kind = inspect.Parameter.KEYWORD_ONLY
    own = [one for one in inspect.signature(function).parameters.values() if one.kind is kind]
    of_subject = inspect.signature(Subject).parameters
    model = of_subject["model"].replace(annotation="Subject | Model | Session")
    common = [of_subject[name].replace(kind=kind) for name in _FIELDS]
    return inspect.Signature([model, *common, *own])
