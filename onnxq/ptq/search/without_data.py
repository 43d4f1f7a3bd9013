"""Methods that need no data, where there is none: what a user asks for by name is done, and not tested."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import cast

from onnxq.errors import ConfigError
from onnxq.ptq.method import Samples, State, Task, read_improvement
from onnxq.ptq.search.candidates import settled
from onnxq.ptq.search.outcome import Outcome, Step
from onnxq.ptq.search.reasons import NOTHING_TO_CHANGE, StepReason, Why
from onnxq.runtime import Dataset
from onnxq.session.session import Session

NO_SAMPLES = Samples(cast(Dataset, ()), ())
"""Steps that need no data do not ask for any."""

NOT_EVALUATED = Why(StepReason.NOT_EVALUATED, "applied as asked for; without data nothing says whether it helps")


def improve_without_data(session: Session, state: State, names: Iterable[str]) -> Outcome:
    """The improvements of these names, one after the other; one that needs samples is an error."""
    prepared = session.prepared
    chosen = [read_improvement(name) for name in names]
    for item in chosen:
        if item.method.needs_data:
            raise ConfigError(
                f"improvement '{item.method.name}' needs samples, and no data was given: give some with -d, or leave "
                "the improvement out"
            )
    task = Task(prepared.graph, prepared.backend, NO_SAMPLES, engine=session.settings.engine())
    steps = []
    for item in chosen:
        session.progress(f"improve: {item.method.name}", 0, None)
        started = time.perf_counter()
        found = item.run(state, task)
        if found.changed:
            state = settled(found.state, prepared.backend)
        why = NOT_EVALUATED if found.changed else NOTHING_TO_CHANGE
        steps.append(Step.of(item, why, found, time.perf_counter() - started, applied=bool(found.changed)))
    return Outcome(state, None, None, tuple(steps), 0, 0)
