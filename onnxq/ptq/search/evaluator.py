"""How good a quantized model is: what the target would compute, held against the float model or against labels.

The model that is run is the one that `simulate` writes, so that a chip's own roundings and operators count.

    sqnr_db    mean over the floating-point outputs of the signal to noise ratio, each limited to [-20, 100] dB; boxes
               and scores that are one output count apart (`onnxq.graph.joined`)
    kl         mean divergence of the outputs' classes from those of the float model, in nats, lower is better; the
               last axis holds the classes of outputs that are no images, axis 1 those of the others
    agreement  fraction of samples and positions with the class of the float model
    accuracy   fraction of samples with the class of their label, on the first output
    function   of (outputs by name, labels), numpy arrays over all samples

Keys and values that a decoder returns for the next step are no results of its own, and not among them; the sqnr_db of
its logits is that of next tokens (`onnxq.ptq.search.next_tokens`). Metrics of models that read text are in
`onnxq.ptq.search.text_metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from onnxq.emit.kept_simulation import KeptSimulation
from onnxq.errors import ConfigError, DataError
from onnxq.graph import Graph, Node
from onnxq.graph.caches import caches
from onnxq.graph.joined import Join, joins
from onnxq.graph.write import weight_bytes
from onnxq.ptq.method import State
from onnxq.ptq.search.next_tokens import logits_of, root_chances
from onnxq.ptq.search.text_metrics import OF_TOKENS, RETRIEVAL, retrieval, token_entropy
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import KEEP_PAIRS, Optimize, float_session, run_session
from onnxq.runtime.workers import in_threads
from onnxq.types import Backend
from onnxq.user_code import current_folder_importable, find_function, users_errors
from onnxq.verify.kernels import sums_are_exact
from onnxq.verify.results import ExpectedResults, is_float
from onnxq.verify.selections import GivenSession, Selected, indices_of, selecting_nodes

LOWEST_DB, HIGHEST_DB = -20.0, 100.0
"""One output that is equal, or lost, must not decide alone."""

METRICS = ("sqnr_db", "kl", "agreement", "accuracy", *OF_TOKENS, RETRIEVAL)
AGAINST_FLOAT = ("sqnr_db", "kl", "agreement", RETRIEVAL)
"""Metrics that hold a model against the float one, of which a float model has nothing to say."""
LOWER_IS_BETTER = ("kl", *OF_TOKENS)

WIDE = 500
"""Readers of one tensor from which onnxruntime's optimizer takes longer than what it saves: its time grows with their
square."""

Outputs = dict[str, np.ndarray]
UserMetric = Callable[[Mapping[str, np.ndarray], np.ndarray | None], float]


@dataclass(frozen=True)
class Score:
    """`goodness` compares, higher is better; `value` is the metric as users know it; `sqnr_db` has each output.

    `noise` has the squared error of each output in each sample.
    """

    metric: str
    value: float
    goodness: float
    sqnr_db: Mapping[str, float] = field(default_factory=dict)
    noise: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    @property
    def in_db(self) -> bool:
        return self.metric == "sqnr_db"


MOST_STATES, MOST_KEPT_BYTES = 6, 2**29
"""Sessions of states that are kept for evaluators of the same models: the best so far, the same with other ranges, new
ones. Bytes of weights that they and the float model may have together."""
LEAST_STATES = 3
"""Where fewer fit, they are not worth their memory."""


class KeptSessions:
    """Sessions of the models that were run last: evaluators of one model make each once.

    The float model and up to MOST_STATES, as many as have weights that fit into `most_bytes`; where these are fewer
    than LEAST_STATES, the last of all until `forget`.
    """

    def __init__(
        self, simulation: KeptSimulation, *, most_bytes: int = MOST_KEPT_BYTES, in_integers: Backend | None = None
    ) -> None:
        """`in_integers` is a backend whose models are run with onnxruntime's integer kernels, as their users do."""
        self._simulation = simulation
        self._in_integers = in_integers
        self._most_bytes = most_bytes
        self._states: list[tuple[State, tuple[str, ...], GivenSession]] = []
        self._float: tuple[Graph, tuple[str, ...], Any] | None = None
        self._joins: tuple[Graph, Mapping[str, Sequence[Join]]] | None = None

    def of(self, state: State, selecting: Sequence[str] = ()) -> GivenSession:
        """A session for what the target would compute; `selecting` nodes are given what they select."""
        wanted = tuple(selecting)
        for kept in self._states:
            if kept[0] is state and kept[1] == wanted:
                self._states.remove(kept)
                self._states.append(kept)
                return kept[2]
        self._forget_unless_all_fit(state.graph)
        self._states = self._states[max(0, len(self._states) + 1 - self._room(state.graph)) :]
        parts, backend, lent = (state.graph, state.plan.active, state.qparams), self._in_integers, not wanted
        if backend is None:
            graph, make = self._simulation.of(*parts, lent=lent), _session_of
        else:
            graph, make = self._simulation.in_integers(*parts, backend, lent=lent), _integer_session_of
        session = GivenSession.of(graph, selecting, make)
        self._states.append((state, wanted, session))
        return session

    def of_float(self, graph: Graph, further: Sequence[str]) -> Any:
        """A session of the float model, which returns the tensors `further` as well."""
        if not self._all_fit(graph):
            return _session_of(graph, further)
        if self._float is None or self._float[0] is not graph or self._float[1] != tuple(further):
            self._float = (graph, tuple(further), _session_of(graph, further))
        return self._float[2]

    def joins_of(self, graph: Graph) -> Mapping[str, Sequence[Join]]:
        """Which outputs of the float model are several results; found once for all evaluators."""
        if self._joins is None or self._joins[0] is not graph:
            self._joins = graph, joins(graph)
        return self._joins[1]

    def forget(self) -> None:
        """Give back their memory, where it is much."""
        if self._states:
            self._forget_unless_all_fit(self._states[-1][0].graph)

    def _forget_unless_all_fit(self, graph: Graph) -> None:
        if not self._all_fit(graph):
            self._states, self._float = [], None

    def _all_fit(self, graph: Graph) -> bool:
        return self._room(graph) >= LEAST_STATES

    def _room(self, graph: Graph) -> int:
        """How many states fit beside the float model."""
        return min(MOST_STATES, self._most_bytes // max(1, weight_bytes(graph.gs)) - 1)


class Evaluator:
    """Scores of models on the same samples, with the outputs of the float model computed once and kept."""

    def __init__(
        self,
        reference: Graph,
        backend: Backend | None,
        samples: Iterable[Feed],
        *,
        metric: str | UserMetric = "sqnr_db",
        labels: np.ndarray | None = None,
        lower_is_better: bool | None = None,
        last: KeptSessions | None = None,
    ) -> None:
        """`reference` is the float model; a metric that is text is one of METRICS or a module:function.

        `last` is for evaluators of the same states; somebody has to call its `forget`. Without a backend only graphs
        can be evaluated.
        """
        if isinstance(metric, str) and metric not in METRICS:
            if ":" not in metric:
                raise ConfigError(f"unknown metric '{metric}'. Known: {', '.join(METRICS)}, or module:function")
            metric = find_function(metric, "metric")
        if isinstance(metric, str) and metric in METRICS and lower_is_better is not None:
            best = "smallest" if metric in LOWER_IS_BETTER else "largest"
            raise ConfigError(f"{metric} is best where it is {best}: leave out what says otherwise")
        if metric == "accuracy" and labels is None:
            raise ConfigError("accuracy needs labels: give them with the data, or choose another metric")
        self._metric = metric
        self._labels = labels
        self._backend = backend
        self._last = last
        lower = metric in LOWER_IS_BETTER if lower_is_better is None else lower_is_better
        self._sign = -1.0 if lower else 1.0
        self._feeds = list(samples)
        if not self._feeds:
            raise DataError("there are no samples to evaluate the model on: give at least one")
        # Metrics of users and labels are about what the model selects by itself.
        self._selecting = selecting_nodes(reference) if metric in AGAINST_FLOAT else ()
        self._reference = reference
        self._passed_on = frozenset(caches(reference).values())
        self._logits = logits_of(reference, self._passed_on) if metric == "sqnr_db" else None
        self._selected: list[Selected] = [{} for _ in self._feeds]
        self.runs = 0

    @cached_property
    def _expected(self) -> list[Outputs]:
        """What the float model computes: when it is first asked for, which may be never."""
        return self._of_reference(self._reference)

    @cached_property
    def _results(self) -> ExpectedResults:
        joined = joins(self._reference) if self._last is None else self._last.joins_of(self._reference)
        return ExpectedResults(joined, self._expected)

    @property
    def name(self) -> str:
        return self._metric if isinstance(self._metric, str) else getattr(self._metric, "__name__", "metric")

    @property
    def lower_is_better(self) -> bool:
        return self._sign < 0

    @property
    def samples(self) -> int:
        return len(self._feeds)

    def forget(self) -> None:
        """Give back what is kept for other evaluators of the same state."""
        if self._last is not None:
            self._last.forget()

    def of_float(self) -> Score:
        """The score of the float model itself."""
        return self._score(self._expected)

    def __call__(self, state: State) -> Score:
        """The score of a model with its quantizers, as the target computes it."""
        self.runs += 1
        last = self._last
        if last is None:
            assert self._backend is not None  # who evaluates states gives it
            last = KeptSessions(KeptSimulation(self._backend))
        return self._score(self._run(last.of(state, self._selecting)))

    def of_graph(self, graph: Graph) -> Score:
        """The score of a model as it is; one that does not have the nodes which select is given nothing."""
        self.runs += 1
        there = all(graph.has_node(name) for name in self._selecting)
        return self._score(self._run(GivenSession.of(graph, self._selecting if there else (), _session_of)))

    def _of_reference(self, reference: Graph) -> list[Outputs]:
        """The outputs of the float model, and what it selects."""
        indices = [indices_of(reference, node) for node in self._selecting]
        session = _session_of(reference, indices) if self._last is None else self._last.of_float(reference, indices)
        names = reference.output_names

        def run(numbered: tuple[int, Feed]) -> list[Any]:
            return run_session(session, [*names, *indices], numbered[1], f"sample {numbered[0]}")

        found = []
        for number, values in enumerate(in_threads(run, enumerate(self._feeds))):
            found.append(self._judged(dict(zip(names, values, strict=False))))
            self._selected[number] = dict(zip(self._selecting, values[len(names) :], strict=True))
        return found

    def _run(self, given: GivenSession) -> list[Outputs]:
        names = [output.name for output in given.session.get_outputs()]
        assert self._expected  # what the float model selects is given to the others

        def run(numbered: tuple[int, tuple[Feed, Selected]]) -> Outputs:
            number, (feed, selected) = numbered
            return self._judged(dict(zip(names, given.run(names, feed, selected, f"sample {number}"), strict=True)))

        return list(in_threads(run, enumerate(zip(self._feeds, self._selected, strict=True))))

    def _judged(self, outputs: Outputs) -> Outputs:
        """What of the outputs is compared: of a decoder's logits the chances of the next tokens."""
        if self._logits is not None:
            outputs[self._logits] = root_chances(outputs[self._logits])
        return outputs

    def _score(self, found: list[Outputs]) -> Score:
        sums = self._results.compare(found)
        each, noise = {}, {}
        for name, one in sums.items():
            if name not in self._passed_on:
                each[name], noise[name] = one.total.value, np.array(one.noise)
        value = self._value(found, each)
        worst = -math.inf
        goodness = self._sign * value if not math.isnan(value) else worst
        return Score(self.name, value, goodness, each, noise)

    def _value(self, found: list[Outputs], each: Mapping[str, float]) -> float:
        if callable(self._metric):
            return self._of_user(found)
        if self._metric == "sqnr_db":
            limited = [min(max(value, LOWEST_DB), HIGHEST_DB) for value in each.values()]
            return float(np.mean(limited)) if limited else HIGHEST_DB
        if self._metric == "accuracy":
            return self._accuracy(found)
        if self._metric in OF_TOKENS:
            return token_entropy(self._metric, self._feeds, found)
        if self._metric == RETRIEVAL:
            return retrieval(self._feeds, self._expected, found)
        parts = [
            (_divergence if self._metric == "kl" else _agreement)(expected[name], outputs[name])
            for expected, outputs in zip(self._expected, found, strict=True)
            for name in expected
            if name not in self._passed_on
            and is_float(expected[name])
            and expected[name].ndim >= 2
            and expected[name].size
        ]
        if not parts:
            raise ConfigError(f"{self._metric} needs an output with classes, of two axes or more: choose sqnr_db")
        return float(np.mean(parts))

    def _accuracy(self, found: list[Outputs]) -> float:
        assert self._labels is not None
        name, first = next(iter(found[0].items()))
        if not isinstance(first, np.ndarray) or first.ndim < 2 or not first.shape[1]:
            raise ConfigError(
                f"accuracy needs classes along axis 1 of the first output, '{name}': choose another metric"
            )
        classes = np.concatenate([outputs[name].argmax(axis=1).ravel() for outputs in found])
        labels = np.asarray(self._labels).ravel()
        if len(labels) != len(classes):
            raise DataError(f"there are {len(labels)} labels for {len(classes)} answers of output '{name}'")
        return float((classes == labels).mean())

    def _of_user(self, found: list[Outputs]) -> float:
        joined = {name: self._joined(name, [outputs[name] for outputs in found]) for name in found[0]}
        with users_errors(f"metric '{self.name}'"), current_folder_importable():
            value = self._metric(joined, self._labels)  # type: ignore[operator]
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ConfigError(f"metric '{self.name}' returned a {type(value).__name__}: return a number") from None

    def _joined(self, name: str, values: list[np.ndarray]) -> np.ndarray:
        """An output over all samples; single numbers become a vector."""
        shapes = {np.shape(each)[1:] for each in values}
        if len(shapes) > 1 or not all(isinstance(each, np.ndarray) for each in values):
            raise ConfigError(
                f"metric '{self.name}' gets each output of all samples as one array, which those of '{name}' do not "
                "make: give samples for which it has one shape, or choose another metric"
            )
        return np.concatenate([np.atleast_1d(each) for each in values])


def _session_of(graph: Graph, further: Sequence[str] = ()) -> Any:
    if any(len(tensor.outputs) > WIDE for node in graph.nodes() for tensor in node.outputs):
        return float_session(graph, further, optimize="none", threads=1)
    # Around a layer onnxruntime would take a pair of float8 for a request to compute it in integers.
    optimize: Optimize = "basic" if any(map(_is_float8, graph.nodes("QuantizeLinear"))) else "all"
    return float_session(graph, further, optimize=optimize, threads=1, config=KEEP_PAIRS)


def _integer_session_of(graph: Graph, further: Sequence[str] = ()) -> Any:
    return float_session(graph, further, threads=1)


def computed_in_integers(backend: Backend) -> Backend | None:
    """The backend, where the model that it writes runs in onnxruntime as Q/DQ, and sums are exact on this machine.

    Integer kernels take a third of the time of float operators between quantizers, and are what the file runs with.
    Without exact sums a file may be written in another form than the one that is tried here.
    """
    in_integers = backend.runs_in_onnxruntime and not backend.integer_operators and not backend.simulations
    return backend if in_integers and sums_are_exact() else None


def _is_float8(node: Node) -> bool:
    """Whether a QuantizeLinear makes other numbers than integers."""
    kind = node.outputs[0].dtype
    return kind is not None and np.dtype(kind).kind not in "iu"


def _class_axis(values: np.ndarray) -> int:
    return 1 if values.ndim == 4 else values.ndim - 1


def _agreement(expected: np.ndarray, found: np.ndarray) -> float:
    if expected.shape != found.shape:
        return 0.0
    axis = _class_axis(expected)
    return float((expected.argmax(axis) == found.argmax(axis)).mean())


def _divergence(expected: np.ndarray, found: np.ndarray) -> float:
    """KL(float, quantized) of the classes; outputs that are no probabilities are taken for logits."""
    if expected.shape != found.shape:
        return math.inf
    axis = _class_axis(expected)
    probable = bool((expected >= 0).all() and np.allclose(expected.sum(axis), 1.0, atol=1e-3))
    p, log_p = _probabilities(expected, axis, probable)
    _, log_q = _probabilities(found, axis, probable)
    return float((p * (log_p - log_q)).sum(axis).mean())


def _probabilities(values: np.ndarray, axis: int, probable: bool) -> tuple[np.ndarray, np.ndarray]:
    values = values.astype(np.float64)
    if probable:
        values = np.log(np.maximum(values, 1e-12))
    shifted = values - values.max(axis, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    return np.exp(logs), logs
