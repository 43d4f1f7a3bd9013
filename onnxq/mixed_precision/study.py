"""A model that is studied: made ready, calibrated and run in float once, then scored with many sets of quantizers.

Statistics of activations are gathered once, as histograms wherever these can replace ranges, so that a configuration
with other bits needs no run of the model to be calibrated. Scores are kept by what they depend on: the float graph,
the quantizers with their parameters, the samples, the labels, the metric and the version of onnxruntime; those of
improved models also by the improvements, the calibration samples and the version of onnxq.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.calibrate import Gathered, activation_leaders, gather, gather_into
from onnxq.calibrate.gather import with_observers
from onnxq.calibrate.identity import SampleHash, model_identity
from onnxq.calibrate.resume import gathered_from
from onnxq.calibrate.statistics_file import VERSION, read_statistics
from onnxq.config import Config, override_set, read_config
from onnxq.errors import ConfigError, UnsupportedError
from onnxq.graph import Graph
from onnxq.mixed_precision.evaluation import open_evaluation
from onnxq.mixed_precision.improved import identity_of_improvements, improvements_of
from onnxq.mixed_precision.metric_identity import sources_of
from onnxq.mixed_precision.scores import Scores
from onnxq.mixed_precision.subject import Subject
from onnxq.place import place
from onnxq.place.legal import check_opset, check_plan
from onnxq.progress import Tracker
from onnxq.progress.time_limit import NOT_OBEYED
from onnxq.ptq.method import State
from onnxq.ptq.search.evaluator import HIGHEST_DB, LOWEST_DB, METRICS, Evaluator, Score, UserMetric
from onnxq.ptq.search.stage import improve_calibrated
from onnxq.refine import refine
from onnxq.runtime.fault import own_fault
from onnxq.runtime.pinned import pinned_beyond
from onnxq.runtime.session import describe_runtime
from onnxq.session.float_tails import calibrate_with_tails
from onnxq.session.prepare import Prepared, untimed
from onnxq.types import Placement, QParamsTable, QuantPlan
from onnxq.user_code import find_function


class Study:
    """The subject made ready. `float_score` is what the float model reaches, `notes` are remarks for the report.

    `improvements` are tried for models that `score_improved` scores; there are none unless the configuration says so.
    `like` is another study of the same model and data with the same cache: what it has seen is not looked at again.
    """

    def __init__(self, subject: Subject, *, like: Study | None = None) -> None:
        self.session = session = subject.open()
        self.config = session.settings
        self.improvements = improvements_of(self.config)
        assert session.dataset is not None
        self.dataset = session.dataset
        metric = _metric(subject.metric)
        evaluation = open_evaluation(
            subject.evaluate_on,
            session.original,
            self.dataset,
            labels=subject.labels,
            limit=subject.samples,
            preprocess=self.config.preprocess,
        )
        self.prepared: Prepared = session.prepared
        check_opset(self.prepared.graph, self.prepared.backend)
        self.evaluator = Evaluator(
            self.prepared.graph,
            self.prepared.backend,
            evaluation.feeds,
            metric=metric,
            labels=evaluation.labels,
            lower_is_better=None if subject.best_by is None else subject.best_by == "min",
        )
        self.feed = evaluation.first()
        self.float_score = self.evaluator.of_float()
        if math.isnan(self.float_score.value):
            raise ConfigError(
                f"metric '{self.evaluator.name}' gives no number for the float model on these samples, so nothing can "
                "be compared with it: return a number"
            )
        self.notes: list[str] = [*evaluation.notes]
        if self.config.time_limit is not None and session.limit is None:
            self.notes.append(NOT_OBEYED)
        self.notes += untimed(self.config)
        folder = self._folder = None if subject.cache is None else Path(subject.cache)
        self._scores = Scores(folder)
        self._gathered = Gathered()
        self._leaders: list[Placement] = []
        self._model = model_identity(self.prepared.graph)
        self._data: str = _identity_of_data(self.dataset, None) if like is None else like._data
        self._samples = _joined(self._model, self._data)[:16]
        # With the version of the format, so that a cache that an older onnxq has left is no error.
        self._file = None if folder is None else folder / f"statistics-{VERSION}-{self._samples}.npz"
        self._evaluation_key = _joined(
            self._model,
            _identity_of_data(evaluation.feeds, evaluation.labels),
            _identity_of_metric(metric, subject.best_by),
            json.dumps(describe_runtime(None), sort_keys=True),
            *self.prepared.backend.simulations,
        )
        if like is not None:
            self._take_up()

    def _take_up(self) -> None:
        """Begin with the statistics that another study has left for the same graph and data."""
        # In bodies of If, Loop and Scan values depend on what else is looked at: there, `gather_into` decides.
        if self._file is not None and self._file.exists() and len(self.graph.scopes()) == 1:
            self._gathered = gathered_from(read_statistics(self._file))

    @property
    def graph(self) -> Graph:
        """The float graph after the passes."""
        return self.prepared.graph

    @property
    def evaluations(self) -> dict[str, int]:
        """How many sets of quantizers were run, and how many scores were known already."""
        return {"run": self.evaluator.runs, "known": self._scores.found}

    def plan(self, config: Config | None = None, *, checked: bool = True) -> QuantPlan:
        """The plan of a configuration; unlike for `onnxq quantize` it may be empty."""
        prepared = replace(self.prepared, config=config or self.config)
        plan = place(prepared.graph, prepared.backend, override_set(prepared.config))
        if checked:
            check_plan(plan, prepared.backend)
        plan.config = prepared.config.recorded()
        return plan

    def calibrated(self, plan: QuantPlan) -> State:
        """A plan with its parameters, as `onnxq quantize` finds them."""
        prepared = replace(self.prepared, config=read_config(plan.config))
        with own_fault(self.session.original, self.dataset):
            qparams, plan, _ = calibrate_with_tails(prepared, plan, self._seen(plan), self._seen)
            return State(self.graph, plan, refine(self.graph, plan, qparams, self.prepared.backend).qparams)

    def score(self, state: State) -> Score:
        """How good a model with these quantizers is; one that was scored before is not run again."""
        plan = state.plan.active
        if not plan.placements:
            return self.float_score
        key = _joined(self._evaluation_key, _identity_of_plan(plan, state.qparams, self.prepared.backend.simulations))
        held = self._scores.get(key)
        if held is None:
            with own_fault(self.session.original, self.dataset):
                held = self.evaluator(state)
            self._scores.put(key, held)
        return held

    def score_improved(self, state: State, config: Config) -> Score:
        """How good the model is that `onnxq quantize` makes of a configuration; `state` is the calibrated one.

        Where no improvements are asked for or possible, that is the calibrated model.
        """
        plan = state.plan.active
        if not self.improvements or not plan.placements:
            return self.score(state)
        key = _joined(
            self._evaluation_key,
            _identity_of_plan(plan, state.qparams, self.prepared.backend.simulations),
            *identity_of_improvements(self.improvements, self._samples),
        )
        held = self._scores.get(key)
        if held is not None:
            return held
        folder = None if self._folder is None else self._folder / f"improving-{key[:16]}"
        # With a tracker of its own: for the search this is one of its evaluations.
        session = replace(self.session, settings=config, tracker=Tracker())
        outcome, notes = improve_calibrated(session, state, folder=folder)
        self.notes += [note for note in notes if note not in self.notes]
        if outcome is None:
            return self.score(state)
        held = self.evaluator(outcome.state)
        self._scores.put(key, held)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        return held

    def _seen(self, plan: QuantPlan) -> Gathered:
        """What was seen of the tensors of a plan."""
        self._gather(activation_leaders(plan))
        return self._gathered

    def _gather(self, leaders: Sequence[Placement]) -> None:
        """Have the statistics that these leaders need, running the model for those that are not there yet."""
        missing = [placement for placement, observer in with_observers(leaders) if not self._known(placement, observer)]
        if not missing:
            return
        self._leaders += missing
        engine, report = self.config.engine(), partial(self.session.progress, "calibrate")
        if self._file is not None:
            self._gathered = gather_into(
                self._file, self.graph, self._leaders, self.dataset, engine=engine, progress=report
            )
            return
        # Where what is observed changes what is pinned, statistics of two runs do not go together.
        observed = [tensor for placement in self._leaders for tensor in placement.observe]
        wanted = self._leaders if pinned_beyond(self.graph, observed) else missing
        new = gather(self.graph, wanted, self.dataset, engine=engine, reusable=True, progress=report)
        held = self._gathered
        both = {name: {**held.statistics.get(name, {}), **new.statistics.get(name, {})}
                for name in (*held.statistics, *new.statistics)}  # fmt: skip
        self._gathered = replace(new, statistics=both, unreachable={**held.unreachable, **new.unreachable})

    def _known(self, placement: Placement, observer: Any) -> bool:
        try:
            for tensor in placement.observe:
                self._gathered.find(tensor, observer, placement.spec)
        except UnsupportedError:
            return False
        return True


def noise(score: Score) -> float:
    """Noise power over signal power, the mean of the outputs; what layers add to it is about what each adds alone."""
    limited = [min(max(value, LOWEST_DB), HIGHEST_DB) for value in score.sqnr_db.values()]
    return float(np.mean([10.0 ** (-value / 10.0) for value in limited])) if limited else 0.0


def overall_db(score: Score) -> float:
    """The signal to noise ratio over all outputs, as `noise` has it."""
    ratio = noise(score)
    return HIGHEST_DB if ratio <= 0.0 else float(-10.0 * np.log10(ratio))


def _metric(metric: str | UserMetric) -> str | UserMetric:
    if callable(metric) or metric in METRICS:
        return metric
    if ":" not in metric:
        raise ConfigError(f"unknown metric '{metric}'. Known: {', '.join(METRICS)}, or module:function")
    return find_function(metric, "metric")


def _identity_of_metric(metric: str | UserMetric, best_by: str | None) -> str:
    if isinstance(metric, str):
        return _joined(metric, str(best_by))
    name = getattr(metric, "__qualname__", type(metric).__name__)
    return _joined(getattr(metric, "__module__", ""), name, *sources_of(metric), str(best_by))


def _identity_of_data(feeds: Any, labels: np.ndarray | None) -> str:
    samples = SampleHash()
    for number, feed in enumerate(feeds):
        samples.add(number, feed)
    if labels is None:
        return samples.hexdigest()
    beside = SampleHash()
    beside.add(0, {"labels": labels})
    return _joined(samples.hexdigest(), beside.hexdigest())


def _identity_of_plan(plan: QuantPlan, qparams: QParamsTable, simulations: Sequence[str]) -> str:
    """Hash of everything about quantizers that changes values; simulations also ask which nodes are quantized."""
    digest = hashlib.sha256()
    for name in sorted(plan.placements):
        placement, held = plan[name], qparams[name]
        edges = None if placement.edges is None else sorted(placement.edges)
        digest.update(_joined(name, json.dumps([placement.spec.to_json(), edges], sort_keys=True)).encode())
        digest.update(held.scale.tobytes() + held.zero_point.tobytes())
        if name in qparams.integer_weights:
            digest.update(np.ascontiguousarray(qparams.integer_weights[name]).tobytes())
    if simulations:
        digest.update(_joined(*sorted(plan.quantized), "", *sorted(plan.fused)).encode())
    return digest.hexdigest()


def _joined(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
