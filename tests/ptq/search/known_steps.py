"""Steps of a search that are worth something known, and a search that begins with scales four times too large."""

from __future__ import annotations

from collections.abc import Callable

from onnxq.errors import UnsupportedError
from onnxq.ptq.method import Improved, Samples, State, Task
from onnxq.ptq.search.candidates import Recalibrate, settled
from onnxq.ptq.search.evaluator import Evaluator
from onnxq.ptq.search.outcome import Outcome, Reached
from onnxq.ptq.search.run import improve
from onnxq.ptq.search.sample_split import split_samples
from onnxq.ptq.search.schedule import Schedule
from onnxq.session.session import Calibrated
from onnxq.types import QParams


def scaled(state: State, factor: float, role: str = "activation") -> State:
    """The state with activation scales, or those of weights, multiplied: far from the calibrated ones is worse."""
    result = state.copy()
    for placement in result.plan:
        if placement.role == role and placement.tie is None:
            held = result.qparams[placement.tensor]
            result.qparams.put(placement.tensor, QParams(held.spec, held.scale * factor, held.zero_point), "test")
    return result


def _step(factor: float) -> Callable[[State, Task], Improved]:
    return lambda state, task: Improved(scaled(state, factor), changed=("all scales",))


def _impossible(state: State, task: Task) -> Improved:
    raise UnsupportedError("no layer of this kind")


STEPS = {
    "repair": _step(0.25),
    "repair_a_little": _step(0.5),
    "damage": _step(8.0),
    "cut_off": _step(1 / 64),
    "widen": _step(16.0),
    "loosen": lambda state, task: Improved(scaled(state, 1.225), changed=("all scales",), recalibrate=True),
    "tighten": _step(0.22),
    "equalize": lambda state, task: Improved(state.copy(), changed=("a layer",), recalibrate=True),
    "observe": lambda state, task: Improved(scaled(state, 0.25), changed=("all ranges",), follows_plan=True),
    "nothing": lambda state, task: Improved(state, declined=("no layer",)),
    "hopeless": lambda state, task: Improved(state, declined=("no layer",), hopeless=True),
    "impossible": _impossible,
}


def as_it_is(state: State, samples: Samples | None) -> State:
    return state


def improve_coarse(
    ready: Calibrated,
    schedule: Schedule,
    recalibrate: Recalibrate = as_it_is,
    reached: Reached | None = None,
    role: str = "activation",
) -> tuple[Outcome, Evaluator]:
    split = split_samples(ready.session.dataset)
    assert split is not None
    prepared = ready.session.prepared
    task = Task(prepared.graph, prepared.backend, split.fitted)
    evaluator = Evaluator(ready.session.original, prepared.backend, split.held_out)
    calibrated = State(prepared.graph, ready.state.plan, ready.state.qparams)
    coarse = settled(scaled(calibrated, 4.0, role), prepared.backend)
    return improve(coarse, task, evaluator, schedule, recalibrate, reached=reached), evaluator
