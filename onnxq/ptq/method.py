"""What a post-training method is: a step after calibration that makes a quantized model more accurate.

A method changes constants of the float graph, parameters, or both, and nothing else: nodes, plan and formats stay as
they are (but for `insert_smoothing`, which adds multiplications, and `outlier_placement`, which changes formats, and
which name their price). A weight that is to be rounded in
a chosen way gets the float value of the number that was chosen, so that every emitter, table and simulation writes that
number. Users know methods as improvements; `onnxq.ptq.search` runs them and keeps what helps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

from onnxq.calibrate.kept_statistics import KeptStatistics
from onnxq.emit.kept_simulation import KeptSimulation
from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping
from onnxq.progress import Progress, silent
from onnxq.registry import Registry, read_arguments
from onnxq.runtime import Dataset
from onnxq.runtime.collect import Engine
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import KEEP_PAIRS
from onnxq.types import Backend, QParamsTable, QuantPlan
from onnxq.types.overrides import Override

T = TypeVar("T")

Argument = bool | int | float | str
Arguments = Mapping[str, Argument]


@dataclass(frozen=True)
class State:
    """A model between two steps: the float graph after the passes with its present constants, plan and parameters.

    A step returns a new State, with a graph of its own where it changes that; the one it got stays as it is.
    """

    graph: Graph
    plan: QuantPlan
    qparams: QParamsTable

    def copy(self) -> State:
        """A state whose graph and table can be changed."""
        return replace(self, graph=self.graph.copy(), qparams=self.qparams.copy())

    def with_own_parameters(self) -> State:
        """A state whose table alone can be changed."""
        return replace(self, qparams=self.qparams.copy())


@dataclass(frozen=True)
class Samples:
    """Some feeds of a dataset, by their numbers; iterating twice gives the same ones, none is kept in memory."""

    dataset: Dataset
    numbers: tuple[int, ...]

    def __iter__(self) -> Iterator[Feed]:
        wanted = set(self.numbers)
        last = max(wanted, default=-1)
        for number, feed in enumerate(islice(self.dataset, last + 1)):
            if number in wanted:
                yield feed

    def __len__(self) -> int:
        return len(self.numbers)

    def first(self, count: int) -> Samples:
        """The first of them, all if they are fewer."""
        return replace(self, numbers=self.numbers[:count])

    def few(self, count: int) -> Samples:
        """As many as say as much as all of them about a layer: `count` of large ones, whose layers have many positions.

        Ranges need all: what is rare sets them.
        """
        sizes = (values.size for values in next(iter(self), {}).values())
        return self.first(count) if sum(sizes) >= LARGE_SAMPLE else self


class Findings:
    """What a method has found out about a state, for the same method with other arguments; of the last state alone."""

    def __init__(self) -> None:
        self._subject: tuple[State, str] | None = None
        self._found: dict[str, object] = {}

    def begin(self, state: State, method: str) -> None:
        """A method is tried on a state: what was found for another one is forgotten."""
        if self._subject is None or self._subject[0] is not state or self._subject[1] != method:
            self._subject, self._found = (state, method), {}

    def of(self, state: State, what: str, find: Callable[[], T]) -> T:
        """What was found before, or is found now."""
        if self._subject is None or self._subject[0] is not state:
            return find()
        if what not in self._found:
            self._found[what] = find()
        return cast(T, self._found[what])


LARGE_SAMPLE = 1024
"""Values of a sample from which few are enough, as of pictures."""

ACTIVATIONS = "activations-"
"""In front of the names of temporary folders with values of layers, below the folder of a task."""


@dataclass(frozen=True)
class Task:
    """What all steps work with.

    reference      the float graph after the last step that left the outputs equal: what layers should compute
    samples        feeds to fit to; those held out are not among them
    folder         where steps may keep activations that do not fit into memory, and what they have done so far, so
                   that a run that was cut off goes on; None keeps nothing
    memory_limit   bytes of activations to hold at once
    engine         how calibration runs the model
    statistics     of float graphs, which steps share; None where everybody collects his own
    noise          squared error of the outputs by their square, which a step has to lower to be worth trying; None
                   where it was asked for by name
    seed           of everything random
    plan_again     places a graph as the user's settings say, with further overrides; it is given the present plan,
                   too. None where nobody can
    simulation     what simulated models of states have in common, which steps share
    findings       of methods, for the same ones with other arguments
    in_integers    the backend, where what it writes runs in onnxruntime with exact sums of integers; None elsewhere
    recalibrated   a state whose plan has changed with the parameters that calibration finds for it
    loss_of        the noise of the outputs of a state by their power, on a few of the samples to fit to
    """

    reference: Graph
    backend: Backend
    samples: Samples
    folder: Path | None = None
    memory_limit: int = 2 * 2**30
    engine: Engine | None = None
    statistics: KeptStatistics | None = None
    noise: float | None = None
    seed: int = 0
    progress: Progress = silent
    plan_again: Callable[[Graph, QuantPlan, Sequence[Override]], QuantPlan] | None = None
    simulation: KeptSimulation | None = None
    findings: Findings = field(default_factory=Findings)
    in_integers: Backend | None = None
    recalibrated: Callable[[State], State] | None = None
    loss_of: Callable[[State], float] | None = None

    def simulated(self, state: State) -> Graph:
        """What the target would compute with a state, as a model for `onnxq.runtime.session.KEEP_PAIRS`."""
        simulation = self.simulation or KeptSimulation(self.backend)
        return simulation.of(state.graph, state.plan.active, state.qparams)

    def computed(self, state: State) -> tuple[Graph, Mapping[str, str]]:
        """The same as a model to run, with integer kernels where there are any, and how its session is configured."""
        if self.in_integers is None:
            return self.simulated(state), KEEP_PAIRS
        simulation = self.simulation or KeptSimulation(self.backend)
        return simulation.in_integers(state.graph, state.plan.active, state.qparams, self.in_integers), {}


@dataclass(frozen=True)
class Improved:
    """What a step has done.

    changed      a line for each layer or tensor that was changed; empty if nothing was, `state` is then the old one
    declined     a line for each one that was not, and why
    recalibrate  the ranges of activations have changed and are to be found again
    follows_plan the parameters are those that a new calibration finds with the changed plan: it may be done on some
                 samples alone, to see what becomes of the others
    widens       formats hold more than before and nothing was fitted: what it gains is no luck with a few samples
    hopeless     it changed nothing, and no other arguments would
    price_db     what it has to gain in SQNR to be kept: nodes that it adds take time wherever the model runs
    details      figures for the report, as JSON values: losses of blocks, alpha of layers ...
    """

    state: State
    changed: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    recalibrate: bool = False
    follows_plan: bool = False
    widens: bool = False
    hopeless: bool = False
    price_db: float = 0.0
    details: JsonMapping = field(default_factory=dict)


Improvement = Callable[..., Improved]
"""The function of an improvement, called with (state, task, **arguments): arguments that it was registered with."""


@dataclass(frozen=True)
class Method:
    """An improvement with what users are told about it; `arguments` are its arguments with their defaults.

    One that needs no data looks at nothing but constants and parameters. One that `rounds` chooses every single weight
    by the samples that it is fitted to, so that what these say of it means little. One that `rescales` moves factors or
    shifts between layers, so that tensors inside are others than in the model that it got. One that finds a number
    for each channel from samples has `least_samples`, below which an effort does not try it: the largest value of a
    channel in a few samples says little about the next one. `expected_db` is what it gains on most models, by which
    samples that leave doubt are judged. `check` raises a ConfigError for values of arguments that
    it cannot take, before anything is run.
    """

    name: str
    run: Improvement
    summary: str
    paper: str
    arguments: Arguments
    needs_torch: bool = False
    needs_data: bool = True
    rounds: bool = False
    rescales: bool = False
    check: Callable[[Arguments], object] | None = None
    least_samples: int = 0
    expected_db: float = 0.0
    aliases: tuple[str, ...] = ()


IMPROVEMENTS: Registry[Method] = Registry("improvement", "onnxq.ptq")
"""Modules that register methods must be importable without torch: those of `reconstruction` import it inside."""

F = TypeVar("F", bound=Improvement)

FOR_EACH_CHANNEL = 16
"""Samples that a number for each channel takes: with 8 of them, such steps cost small models up to 8 dB on others."""


def improvement(
    name: str,
    summary: str,
    paper: str,
    arguments: Arguments | None = None,
    *,
    needs_torch: bool = False,
    needs_data: bool = True,
    rounds: bool = False,
    rescales: bool = False,
    check: Callable[[Arguments], object] | None = None,
    least_samples: int = 0,
    expected_db: float = 0.0,
    aliases: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Register a function as an improvement; `aliases` are other names that it goes by."""

    def register(function: F) -> F:
        method = Method(
            name,
            function,
            summary,
            paper,
            dict(arguments or {}),
            needs_torch,
            needs_data,
            rounds,
            rescales,
            check,
            least_samples,
            expected_db,
            aliases,
        )
        IMPROVEMENTS.add(name, method)
        for alias in aliases:
            IMPROVEMENTS.add_alias(alias, name)
        return function

    return register


@dataclass(frozen=True)
class Chosen:
    """An improvement with its arguments, as a user writes it: `gptq`, `gptq:act_order=no`, `smoothquant:0.6`."""

    method: Method
    arguments: Arguments

    def __str__(self) -> str:
        own = ",".join(f"{key}={shown(value)}" for key, value in self.arguments.items())
        return f"{self.method.name}:{own}" if own else self.method.name

    def run(self, state: State, task: Task) -> Improved:
        return self.method.run(state, task, **{**self.method.arguments, **self.arguments})


def method_name(text: str) -> str:
    """The name under which the method of `gptq:act_order=no` is listed, whichever of its names was written."""
    return IMPROVEMENTS.name_of(text.partition(":")[0])


def read_improvement(text: str) -> Chosen:
    """An improvement from its name and arguments; ConfigError names what is wrong."""
    name, _, rest = text.partition(":")
    method = IMPROVEMENTS.get(name)
    name = method.name
    given = read_arguments(rest, list(method.arguments), f"improvement '{name}'", "argument")
    values: dict[str, Argument] = {}
    for key, value in given.items():
        if key not in method.arguments:
            known = ", ".join(method.arguments) or "none"
            raise ConfigError(
                f"improvement '{name}' has no argument '{key}'.{did_you_mean(key, method.arguments)} It has: {known}"
            )
        values[key] = _read(value, method.arguments[key], f"{key} of improvement '{name}'")
    if method.check is not None:
        method.check({**method.arguments, **values})
    return Chosen(method, values)


@dataclass(frozen=True)
class Limit:
    """What an argument may be: `text` says it after the argument's name, as in "must be at least 1"."""

    text: str
    holds: Callable[[Any], bool]
    choices: tuple[str, ...] = ()


def at_least(least: float) -> Limit:
    return Limit(f"must be at least {least:g}", lambda value: least <= value < math.inf)


def above(least: float) -> Limit:
    return Limit(f"must be above {least:g}", lambda value: least < value < math.inf)


def one_of(*choices: str) -> Limit:
    return Limit(f"is {' or '.join(choices)}", lambda value: value in choices, choices)


def limits(name: str, **allowed: Limit) -> Callable[[Arguments], None]:
    """The `check` of an improvement from what each of its arguments may be; whole numbers are whole already."""

    def check(arguments: Arguments) -> None:
        for key, limit in allowed.items():
            value = arguments[key]
            if not limit.holds(value):
                given = f"{value:g}" if isinstance(value, float) else f"'{value}'" if limit.choices else str(value)
                near = did_you_mean(str(value), limit.choices)
                raise ConfigError(f"{key} of improvement '{name}' {limit.text}, got {given}.{near}".removesuffix("."))

    return check


def _read(text: str, default: Argument, what: str) -> Argument:
    """A value of the type of the default."""
    if isinstance(default, bool):
        if text not in ("yes", "no"):
            raise ConfigError(f"{what} is yes or no, got '{text}'")
        return text == "yes"
    if isinstance(default, str):
        return text
    try:
        return type(default)(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise ConfigError(f"{what} must be {kind}, got '{text}'") from None


def shown(value: Argument) -> str:
    """An argument as users write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
